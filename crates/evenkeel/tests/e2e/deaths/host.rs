//! The host restarted: another boot id, and no process of before. The id is a file mounted over
//! the kernel's, in a mount namespace of the test's thread, which its broker and shims inherit.

use std::fs;
use std::path::PathBuf;

use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
use rustix::process::{Signal, kill_process};
use rustix::thread::UnshareFlags;
use uuid::Uuid;

use crate::casualties::{DEATHS, QUICK, charges};
use crate::harness::{eventually, pid};
use crate::stage::{Offer, Order, Scene, Stage};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A host that restarts does not wait for what runs.
const DETACH: &str = "[shutdown]\non_shutdown = \"detach\"";

struct Host {
    id: PathBuf,
    _folder: tempfile::TempDir,
    restarts: u128,
}

impl Host {
    /// From now on this thread, and what it starts, lives on a host of its own. Needs a test whose
    /// runtime has no other thread.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let id = folder.path().join("boot_id");
        let mut host = Self {
            id,
            _folder: folder,
            restarts: 0,
        };
        host.next_id();
        #[expect(unsafe_code, reason = "unsharing has no safe form")]
        // SAFETY: nothing of this process is taken from under anybody: the thread gets a mount
        // table of its own, and its own working directory.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }
            .expect("tests of host restarts unshare mounts, as root");
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change("/", private).unwrap();
        mount_bind(&host.id, BOOT_ID).unwrap();
        assert!(fs::read_to_string(BOOT_ID).unwrap().ends_with("01\n"));
        host
    }

    fn next_id(&mut self) {
        self.restarts += 1;
        fs::write(&self.id, format!("{}\n", Uuid::from_u128(self.restarts))).unwrap();
    }

    /// No process is left, and the kernel is another. The broker is down already.
    async fn restarts(&mut self, stage: &Stage) {
        eventually("every process is gone", || {
            let mut left = stage.broker.run_processes();
            // At once, as far as that goes: a shim that outlived its action would tell of its end.
            left.sort_by_key(|id| !is_shim(*id));
            for id in &left {
                kill_process(pid(*id), Signal::KILL).ok();
            }
            std::future::ready(left.is_empty().then_some(()))
        })
        .await;
        self.next_id();
    }

    async fn dies(&mut self, stage: &mut Stage) {
        stage.broker.kill();
        self.restarts(stage).await;
    }
}

fn is_shim(id: u32) -> bool {
    let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
    name.trim() == "evenkeel-shim"
}

async fn under_way(stage: &Stage, of: &Offer) -> Vec<(Scene, Order)> {
    let mut all = Vec::new();
    for number in 0..3 {
        let scene = stage.scene(&format!("under-way-{number}"));
        let order = stage.provision(&scene, of, "provision").await;
        scene.started("provision", 1).await;
        all.push((scene, order));
    }
    all
}

/// What the first attempt of each cost, and that all end well at their second start.
async fn end_well(stage: &Stage, all: &[(Scene, Order)], charge: &str) {
    for (scene, order) in all {
        scene.open_gate();
        stage.succeeded(order).await;
        assert_eq!(scene.starts("provision"), 2, "{}", scene.instance);
        let job = stage.broker.job(&order.job).await;
        assert_eq!(charges(&job), [charge, "none"], "{job:#}");
    }
    stage.broker.nothing_left().await;
}

#[tokio::test]
async fn a_host_that_is_lost_exposes_each_of_its_jobs_once_and_all_end_well() {
    let mut host = Host::new();
    let mut stage = Stage::new(QUICK).await;
    let of = stage.offer("ok").await;
    let all = under_way(&stage, &of).await;
    host.dies(&mut stage).await;
    stage.boot("").await;
    for (scene, _) in &all {
        scene.started("provision", 2).await;
    }
    // The broker's death on the same host, their runs alive, is nothing to them.
    stage.reboot("").await;
    end_well(&stage, &all, "exposure").await;
}

#[tokio::test]
async fn i8_an_orderly_restart_of_the_host_charges_nobody() {
    let mut host = Host::new();
    let mut stage = Stage::new(DETACH).await;
    let of = stage.offer("ok").await;
    let all = under_way(&stage, &of).await;
    assert!(stage.broker.terminate().success());
    host.restarts(&stage).await;
    stage.boot("").await;
    end_well(&stage, &all, "disruption").await;
}

#[tokio::test]
async fn i7_a_job_that_takes_the_host_along_each_time_is_set_aside_in_time() {
    let mut host = Host::new();
    let mut stage = Stage::new(QUICK).await;
    let of = stage.offer("ok").await;
    let scene = stage.scene("poison");
    stage.prepare(&scene, &of, "update").await;
    let innocents = under_way(&stage, &of).await;
    let poison = stage.order(&scene, &of, "update").await;
    for death in 1..=DEATHS {
        scene.started("update", death).await;
        if death <= 2 {
            for (innocent, _) in &innocents {
                innocent.started("provision", death).await;
            }
        }
        host.dies(&mut stage).await;
        if death == 2 {
            // Now everybody is a suspect, and whoever is innocent ends when it runs alone.
            innocents.iter().for_each(|(scene, _)| scene.open_gate());
        }
        stage.boot("").await;
    }
    let job = stage.broker.job_is(&poison.job, "quarantined").await;
    assert_eq!(job["budget"]["losses"], 3, "{job:#}");
    // The end of the last one is another word: it was condemned before it was looked at.
    let told = charges(&job);
    assert_eq!(
        told[..4],
        ["exposure", "exposure", "loss", "loss"],
        "{job:#}"
    );
    for (innocent, order) in &innocents {
        stage.succeeded(order).await;
        assert_eq!(innocent.starts("provision"), 3, "{}", innocent.instance);
        let told = charges(&stage.broker.job(&order.job).await);
        assert_eq!(told, ["exposure", "exposure", "none"]);
    }
    stage.broker.nothing_left().await;
}

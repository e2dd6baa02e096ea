//! What a warden cannot write down. A disk that fills up while its broker runs is no reason: the
//! room was taken before. Where there is none, or nothing can be written, it says so, restarts the
//! broker all the same, and the next boot counts that death as one that nobody saw.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use reqwest::Method;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_remount, unmount};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::harness::{Broker, eventually, pid};
use crate::warden::record;
use crate::warden_ends::{at_the_gate, ends_well, patient};

/// Something mounted over the warden's folder.
struct Over(PathBuf);

impl Over {
    /// The folder itself, for nobody to write in.
    fn read_only(folder: &Path) -> Self {
        mount_bind(folder, folder).expect("these tests mount, as root");
        let over = Self(folder.to_owned());
        mount_remount(folder, MountFlags::BIND | MountFlags::RDONLY, c"").unwrap();
        over
    }

    /// A small file system of its own.
    fn small(folder: &Path) -> Self {
        mount(
            "tmpfs",
            folder,
            "tmpfs",
            MountFlags::empty(),
            Some(c"size=64k,mode=0700"),
        )
        .expect("these tests mount, as root");
        Self(folder.to_owned())
    }

    /// A file system of its own that is full.
    fn full(folder: &Path) -> Self {
        let over = Self::small(folder);
        over.fill();
        over
    }

    /// Takes all the room that is left.
    fn fill(&self) {
        let mut options = OpenOptions::new();
        let filling = options.create(true).append(true);
        let mut filling = filling.open(self.0.join("filling")).unwrap();
        let end = loop {
            if let Err(error) = filling.write_all(&[0; 512]) {
                break error;
            }
        };
        assert_eq!(end.kind(), ErrorKind::StorageFull, "{end}");
    }
}

impl Drop for Over {
    fn drop(&mut self) {
        unmount(self.0.as_path(), UnmountFlags::DETACH).unwrap();
    }
}

/// Kills the broker; gives the boot that died, when the next one is ready.
async fn killed(broker: &Broker) -> String {
    let boot = broker.boot_id().await.expect("it is ready");
    let one = broker.under_warden(broker.pid()).await;
    kill_process(pid(one), Signal::KILL).unwrap();
    broker.next_boot(&boot).await;
    boot
}

async fn holds(broker: &Broker) -> Vec<Value> {
    let status = broker.admin(Method::GET, "/admin/v1/status").await;
    status.body["holds"].as_array().cloned().unwrap_or_default()
}

async fn unrecorded(over: fn(&Path) -> Over, why: &str, keeps_words: bool) {
    let mut broker = patient("[shutdown]\non_shutdown = \"detach\"");
    broker.boot().await;
    let operation = at_the_gate(&broker).await;
    let warden = broker.pid();
    let folder = broker.data().join("warden");
    let over = over(&folder);
    for nth in 1..=3 {
        assert!(
            holds(&broker).await.is_empty(),
            "not after {} deaths",
            nth - 1
        );
        let boot = killed(&broker).await;
        assert!(!folder.join(format!("{boot}.json")).exists());
        let told = broker.log();
        let told: Vec<_> = told
            .lines()
            .filter(|line| line.contains("how the broker ended could not be recorded"))
            .collect();
        assert_eq!(told.len(), nth, "once each: {told:?}");
        assert!(told[nth - 1].contains(why), "{told:?}");
        let last_words = broker.log().matches("last words will not be kept").count();
        assert_eq!(last_words, if keeps_words { 0 } else { nth });
        // The first one began before the folder was in this state.
        let no_room = broker.log().matches("may not be recorded").count();
        assert_eq!(no_room, if keeps_words { nth } else { 0 });
        let listed = broker.boot_in_list(&boot).await;
        assert_eq!(listed["verdict"], "died", "{listed}");
        assert_eq!(listed.get("death"), None, "nobody could tell: {listed}");
        let ready = broker.admin(Method::GET, "/readyz").await.body.to_string();
        let unseen = format!("boot {boot} died, and nobody saw how");
        assert!(ready.contains(&unseen), "{ready}");
    }
    // Three in a row that nothing explains, recorded or not.
    eventually("it is held", || async {
        let holds = holds(&broker).await;
        holds
            .iter()
            .any(|hold| hold["cause"] == "deaths")
            .then_some(())
    })
    .await;
    assert_eq!(broker.pid(), warden);

    // An end in order has a mark of its own.
    let boot = broker.boot_id().await.expect("it is ready");
    assert_eq!(broker.terminate().code(), Some(0), "{}", broker.log());
    broker.boot().await;
    let listed = broker.boot_in_list(&boot).await;
    assert_eq!(listed["verdict"], "ended in order", "{listed}");

    // And as soon as the folder can be used again it is.
    drop(over);
    killed(&broker).await;
    let boot = killed(&broker).await;
    assert_eq!(record(&broker, &boot)["signal"], 9);
    let listed = broker.boot_in_list(&boot).await;
    assert_eq!(listed["death"]["signal"], 9, "{listed}");
    ends_well(&broker, &operation).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_death_that_cannot_be_recorded_on_a_read_only_folder_is_told_and_counted_as_unseen() {
    unrecorded(Over::read_only, "Read-only file system", false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_death_of_a_broker_that_started_on_a_full_disk_is_told_and_counted_as_unseen() {
    unrecorded(Over::full, "No space left on device", true).await;
}

/// The disk fills up while the broker runs; the store cannot keep the drain mark either.
#[tokio::test(flavor = "multi_thread")]
async fn i8_a_death_and_a_drain_on_a_disk_that_has_filled_up_are_recorded() {
    let mut broker = patient("[shutdown]\non_shutdown = \"detach\"");
    let folder = broker.data().join("warden");
    let mut private = DirBuilder::new();
    let made = private.recursive(true).mode(0o700).create(&folder);
    made.unwrap();
    let over = Over::small(&folder);
    "store.mark_drained.before=error:full".clone_into(&mut broker.setup.faults);
    broker.boot().await;
    let operation = at_the_gate(&broker).await;
    over.fill();
    // What the first one gives back is enough for the others.
    for _ in 0..3 {
        let boot = killed(&broker).await;
        assert_eq!(record(&broker, &boot)["signal"], 9);
        let listed = broker.boot_in_list(&boot).await;
        assert_eq!(listed["death"]["signal"], 9, "{listed}");
    }
    let boot = broker.boot_id().await.expect("it is ready");
    over.fill();
    assert_eq!(broker.terminate().code(), Some(0), "{}", broker.log());
    assert_eq!(record(&broker, &boot)["asked_to_end"], true);
    let log = broker.log();
    assert!(!log.contains("recorded"), "{log}");

    broker.setup.faults.clear();
    broker.boot().await;
    let listed = broker.boot_in_list(&boot).await;
    assert_eq!(listed["verdict"], "ended in order", "{listed}");
    assert_eq!(listed["death"]["asked_to_end"], true, "{listed}");
    ends_well(&broker, &operation).await;
}

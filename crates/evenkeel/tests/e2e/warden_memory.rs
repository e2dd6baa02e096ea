//! The kernel ends the broker for want of memory in its control group: the warden's record says so,
//! and so does `evenkeel boots`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::harness::{Broker, Setup, eventually};
use crate::warden::record;
use crate::warden_deaths::ask_the_end;

/// Enough for a broker with its program's pages, and less than it is told to take.
const LIMIT: u64 = 384 << 20;

/// A group of version 1 beneath this process's own.
pub(crate) struct Group(PathBuf);

impl Group {
    /// With [`LIMIT`]; the name is completed by this process's id.
    pub(crate) fn new(name: &str) -> Self {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap();
        let own = own.lines().find_map(|line| line.split_once(":memory:"));
        let (_, own) = own.expect("this host has a memory controller of version 1");
        let own = Path::new("/sys/fs/cgroup/memory").join(own.trim_start_matches('/'));
        let group = Self(own.join(format!("{name}-{}", std::process::id())));
        fs::create_dir(&group.0).unwrap();
        group.set("memory.limit_in_bytes", LIMIT);
        // Where there is swap it is no way out.
        if group.0.join("memory.memsw.limit_in_bytes").exists() {
            group.set("memory.memsw.limit_in_bytes", LIMIT);
        }
        group
    }

    fn set(&self, name: &str, value: u64) {
        fs::write(self.0.join(name), value.to_string()).unwrap();
    }

    /// Words before a command that put it, and what it starts, into the group.
    pub(crate) fn before(&self) -> Vec<String> {
        let script = format!("echo $$ >{}/cgroup.procs && exec \"$@\"", self.0.display());
        ["sh", "-c", &script, "sh"].map(str::to_owned).to_vec()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Whoever was in it has ended; the kernel takes a moment.
        for _ in 0..1000 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("{} cannot be removed", self.0.display());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_its_own_group_had_no_memory_for_is_told_as_that_and_another_serves() {
    let group = Group::new("evenkeel-test");
    let setup = Setup::faults_bundle().with_faults("server.admin_catalog=oom");
    let mut broker = Broker::new(setup.with_warden());
    broker.setup.before = group.before();
    broker.boot().await;
    let warden = broker.pid();
    let boot = broker.boot_id().await.expect("it is ready");
    let mut asked = ask_the_end(&broker);
    broker.next_boot(&boot).await;
    asked.join_next().await.unwrap().unwrap();

    let end = record(&broker, &boot);
    assert_eq!(end["signal"], 9, "{end:#}");
    assert_eq!(end["own_oom"], true, "{end:#}");
    assert_eq!(end["killed_by_watchdog"], false, "{end:#}");
    assert_eq!(end["asked_to_end"], false, "{end:#}");
    let peak = end["peak_memory"].as_u64().unwrap();
    assert!((128 << 20..LIMIT + (64 << 20)).contains(&peak), "{end:#}");
    let told = "was killed by SIGKILL (while its control group ran out of memory)";
    let table = broker.cli(&["boots"]);
    let table = String::from_utf8(table.stdout).unwrap();
    let row = table.lines().find(|line| line.starts_with(&boot));
    let row = row.unwrap_or_else(|| panic!("{table}"));
    assert!(row.contains(told), "{table}");
    let json = broker.cli(&["boots", "--json"]);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    let listed = json["boots"].as_array().unwrap().iter();
    let listed: Vec<_> = listed
        .filter(|listed| listed["id"] == boot.as_str())
        .collect();
    assert_eq!(listed[0]["death"]["own_oom"], true, "{json:#}");
    let status = String::from_utf8(broker.cli(&["status"]).stdout).unwrap();
    assert!(status.contains(told), "{status}");

    assert_eq!(broker.pid(), warden, "the same warden");
    let of = broker.ids("faults", "ok").await;
    let order = broker.provision("i", &of, serde_json::json!({})).await;
    broker.succeeded("i", None, &order.operation()).await;
    assert_eq!(broker.terminate().code(), Some(0), "{}", broker.log());
    eventually("nobody is in the group", || {
        let procs = fs::read_to_string(group.0.join("cgroup.procs")).unwrap();
        std::future::ready(procs.is_empty().then_some(()))
    })
    .await;
}

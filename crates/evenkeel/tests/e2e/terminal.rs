//! `evenkeel serve` in a terminal, and Ctrl-C: warden and broker are both in the foreground, so the
//! terminal tells both; it is one wish, and the terminal is left as it was.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use rustix::process::{Signal, kill_process};

use crate::harness::{Broker, children, eventually, pid};
use crate::warden::record;
use crate::warden_ends::{at_the_gate, ends_well, patient};

/// What a shell does in a terminal: it lets Ctrl-C be the program's.
const SESSION: &str = r#"
trap : INT
stty -a >"$0.before"
"$@"
code=$?
trap '' INT
stty -a >"$0.after"
exit $code
"#;

/// The terminal's keyboard.
struct Keyboard(File);

impl Keyboard {
    fn ctrl_c(&mut self) {
        self.0.write_all(b"\x03").unwrap();
    }
}

/// Nobody else ends what a failed test leaves in its terminal.
struct Foreground([u32; 2]);

impl Drop for Foreground {
    fn drop(&mut self) {
        for id in self.0 {
            let name = fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
            if name.contains("serve") {
                kill_process(pid(id), Signal::KILL).ok();
            }
        }
    }
}

/// Puts the broker's next start into a terminal of its own (script(1)).
fn in_a_terminal(broker: &mut Broker) -> Keyboard {
    let session = broker.dir.path().join("session");
    fs::write(&session, SESSION).unwrap();
    let keys = broker.dir.path().join("keys");
    rustix::fs::mkfifoat(rustix::fs::CWD, &keys, 0o600.into()).unwrap();
    // Both ways, so that neither side waits for the other, and there is no end of file.
    let keyboard = File::options().read(true).write(true).open(&keys).unwrap();
    // `script` has the caller's $SHELL read the command: `exec`, so that none stays that Ctrl-C ends.
    let script = format!(
        "exec script --quiet --return --flush --command \"exec sh {} $*\" /dev/null <{}",
        session.display(),
        keys.display()
    );
    broker.setup.before = ["sh", "-c", &script, "sh"].map(str::to_owned).to_vec();
    Keyboard(keyboard)
}

/// The shell's child is the warden, whose child is the broker.
async fn foreground(broker: &Broker) -> [u32; 2] {
    let shell = eventually("the terminal has its shell", || {
        std::future::ready(children(broker.pid()).first().copied())
    })
    .await;
    let warden = broker.under_warden(shell).await;
    let one = broker.under_warden(warden).await;
    let group = |id: u32| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
        let after = stat.rsplit_once(')').unwrap().1.to_owned();
        let fields: Vec<_> = after.split_whitespace().map(str::to_owned).collect();
        // Process group, terminal, and the terminal's foreground group.
        [2, 4, 5].map(|at| fields[at].clone())
    };
    let [own, terminal, front] = group(warden);
    assert_ne!(terminal, "0");
    assert_eq!(own, front, "the warden is in the foreground");
    assert_eq!(group(one), [own, terminal, front], "and so is the broker");
    [warden, one]
}

fn left_sane(broker: &Broker) {
    let how = |name: &str| fs::read_to_string(broker.dir.path().join(name)).unwrap();
    let before = how("session.before");
    assert!(before.contains("isig"), "{before}");
    assert_eq!(before, how("session.after"));
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_ends_warden_and_broker_once_in_order_and_leaves_the_terminal_as_it_was() {
    let mut broker = patient("[shutdown]\non_shutdown = \"detach\"");
    let mut keyboard = in_a_terminal(&mut broker);
    broker.boot().await;
    let both = Foreground(foreground(&broker).await);
    let operation = at_the_gate(&broker).await;
    let boot = broker.boot_id().await.expect("it is ready");
    keyboard.ctrl_c();
    assert_eq!(broker.died().await.code(), Some(0), "{}", broker.log());
    for id in both.0 {
        assert!(!Path::new(&format!("/proc/{id}")).exists());
    }
    let log = broker.log();
    assert_eq!(
        log.matches("a second signal ends at once").count(),
        1,
        "{log}"
    );
    assert!(
        !log.contains("ended at once"),
        "told once, not twice: {log}"
    );
    assert!(!log.contains("another starts"), "{log}");
    left_sane(&broker);
    let end = record(&broker, &boot);
    assert_eq!(end["asked_to_end"], true, "{end}");
    assert_eq!(end["exit_code"], 0, "{end}");

    broker.setup.before.clear();
    broker.boot().await;
    let listed = broker.boot_in_list(&boot).await;
    assert_eq!(listed["verdict"], "ended in order", "{listed}");
    ends_well(&broker, &operation).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_ctrl_c_ends_at_once_and_the_run_is_adopted_later() {
    let mut broker = patient("[shutdown]\non_shutdown = \"drain\"\ndrain_limit = \"5m\"");
    let mut keyboard = in_a_terminal(&mut broker);
    broker.boot().await;
    let both = Foreground(foreground(&broker).await);
    let operation = at_the_gate(&broker).await;
    let boot = broker.boot_id().await.expect("it is ready");
    // Those within a second are the same wish.
    eventually("it ends at once", || {
        let over = broker.log().contains("ended at once by a second signal");
        if !over {
            keyboard.ctrl_c();
        }
        std::future::ready(over.then_some(()))
    })
    .await;
    assert_eq!(broker.died().await.code(), Some(1), "{}", broker.log());
    for id in both.0 {
        assert!(!Path::new(&format!("/proc/{id}")).exists());
    }
    left_sane(&broker);
    let end = record(&broker, &boot);
    assert_eq!(end["exit_code"], 1, "{end}");

    broker.setup.before.clear();
    broker.boot().await;
    let listed = broker.boot_in_list(&boot).await;
    assert_eq!(listed["verdict"], "ended in order", "{listed}");
    ends_well(&broker, &operation).await;
}

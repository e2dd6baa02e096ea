//! The next `serve` after a warden's death, on the same addresses: it waits for the broker that is
//! left to hand over, which is soon, whatever `on_shutdown` says.

use rustix::process::{Signal, kill_process};

use crate::harness::processes::free_addresses;
use crate::harness::{Broker, eventually, pid};
use crate::warden_ends::{at_the_gate, ends_well, patient};

/// On addresses that stay the same.
fn fixed(on_shutdown: &str) -> Broker {
    let [osb, admin] = free_addresses();
    patient(&format!(
        "[osb]\nlisten = \"{osb}\"\n[admin]\nlisten = \"{admin}\"\n\
         [shutdown]\non_shutdown = \"{on_shutdown}\"\ndrain_limit = \"5m\""
    ))
}

/// The next one starts at once, on the same addresses, and takes up the run.
async fn takes_up(mut broker: Broker, boot: &str, operation: &str) {
    let osb = broker.url("osb-url");
    broker.boot().await;
    assert_eq!(broker.url("osb-url"), osb);
    let listed = broker.boot_in_list(boot).await;
    assert_eq!(listed["verdict"], "ended in order", "{listed}");
    ends_well(&broker, operation).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_addresses_of_a_killed_warden_are_free_soon_whether_runs_are_detached_or_drained() {
    for on_shutdown in ["detach", "drain"] {
        let mut broker = fixed(on_shutdown);
        broker.boot().await;
        let operation = at_the_gate(&broker).await;
        let boot = broker.boot_id().await.expect("it is ready");
        broker.kill();
        takes_up(broker, &boot, &operation).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_is_given_up_for_the_next_serve_if_the_warden_dies_in_the_midst_of_it() {
    let mut broker = fixed("drain");
    broker.boot().await;
    let operation = at_the_gate(&broker).await;
    let boot = broker.boot_id().await.expect("it is ready");
    kill_process(pid(broker.pid()), Signal::TERM).unwrap();
    eventually("the drain has begun", || {
        let ending = broker.log().contains("a second signal ends at once");
        std::future::ready(ending.then_some(()))
    })
    .await;
    broker.kill();
    takes_up(broker, &boot, &operation).await;
}

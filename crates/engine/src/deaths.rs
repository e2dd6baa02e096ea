//! How earlier boots ended: taken over from their wardens' records, and told.

use std::sync::Arc;

use evenkeel_store::error::StoreError;
use evenkeel_store::seam::{Boot, BootView};

use crate::engine::LastDeath;
use crate::faults;
use crate::service::{Shared, run_blocking};

/// Among so many of the newest boots the last unclean end is looked for.
const LOOK_BACK: u32 = 50;

/// Has the store keep how dead boots ended, before anything is decided about what they left: that
/// a boot was asked to end counts as its drain mark, which its own store may not have taken.
pub(crate) async fn take_over(
    shared: &Arc<Shared>,
    mut boots: Vec<Boot>,
) -> Result<Vec<Boot>, StoreError> {
    faults::hit("recovery.deaths");
    let own = shared.options.boot;
    for boot in boots.iter_mut().filter(|boot| boot.id != own) {
        if shared.deaths_taken().contains(&boot.id) {
            continue;
        }
        let (deaths, id) = (Arc::clone(&shared.options.deaths), boot.id);
        let found = run_blocking(move || deaths.of(id)).await;
        let death = found.unwrap_or_else(|error| {
            tracing::error!(boot = %id, error, "how an earlier boot ended could not be read");
            None
        });
        if let Some(death) = death {
            if death.asked_to_end {
                boot.drained_at.get_or_insert(death.ended_at);
            }
            shared.options.store.boot_died(id, death).await?;
        }
        shared.deaths_taken().insert(id);
    }
    Ok(boots)
}

/// The last end of an earlier boot that nobody had asked for.
pub(crate) async fn last_unclean(shared: &Shared) -> Result<Option<LastDeath>, StoreError> {
    let boots = shared.options.store.boots(LOOK_BACK).await?;
    let last = boots
        .into_iter()
        .find(|view| view.boot.id != shared.options.boot && !view.boot.ended_in_order());
    Ok(last.map(|view| told(&view)))
}

/// What is to be said of a dead boot for good. `host_boot` is the host's present one.
pub(crate) fn verdict(boot: &Boot, host_boot: &str) -> String {
    let with_host = boot.host_boot != host_boot;
    match (&boot.broke, boot.ended_in_order(), with_host) {
        (None, true, false) => "ended in order".to_owned(),
        (None, true, true) => "ended in order; the host was restarted".to_owned(),
        (Some(what), _, false) => gave_up(what),
        (Some(what), _, true) => format!("{}; the host was restarted", gave_up(what)),
        (None, false, false) => "died".to_owned(),
        (None, false, true) => "died with its host".to_owned(),
    }
}

fn gave_up(what: &str) -> String {
    format!("handed over, because {what} had panicked")
}

fn told(view: &BootView) -> LastDeath {
    let at = view
        .death
        .as_ref()
        .map_or(view.boot.seen_at, |death| death.ended_at);
    let how = match (&view.boot.broke, &view.death) {
        (Some(what), _) => gave_up(what),
        (None, Some(death)) => death.to_string(),
        (None, None) => "died, and nobody saw how".to_owned(),
    };
    LastDeath {
        boot: view.boot.id,
        at,
        how,
        named: view.named.clone(),
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_core::boot::DeathRecord;
    use evenkeel_core::ids::{BootId, JobId, RunRootId};
    use evenkeel_core::time::Timestamp;

    use super::*;

    fn boot(drained: bool, broke: Option<&str>) -> Boot {
        Boot {
            id: BootId(uuid::Uuid::from_u128(1)),
            nth: 1,
            run_root: RunRootId(uuid::Uuid::from_u128(2)),
            started_at: Timestamp(0),
            host_boot: "host".to_owned(),
            drained_at: drained.then_some(Timestamp(1)),
            broke: broke.map(ToOwned::to_owned),
            seen_at: Timestamp(2),
            closed_at: None,
        }
    }

    #[test]
    fn the_verdict_tells_what_was_asked_for_from_what_broke_and_from_a_death() {
        for (drained, broke, same_host, another) in [
            (
                true,
                None,
                "ended in order",
                "ended in order; the host was restarted",
            ),
            (
                true,
                Some("the claimer"),
                "handed over, because the claimer had panicked",
                "handed over, because the claimer had panicked; the host was restarted",
            ),
            (false, None, "died", "died with its host"),
        ] {
            let boot = boot(drained, broke);
            assert_eq!(verdict(&boot, "host"), same_host);
            assert_eq!(verdict(&boot, "another"), another);
            assert_eq!(boot.ended_in_order(), same_host == "ended in order");
        }
    }

    #[test]
    fn an_end_is_told_by_what_broke_else_by_what_its_warden_saw() {
        let death = DeathRecord {
            exit_code: Some(15),
            ..DeathRecord::at(Timestamp(3))
        };
        let how = |boot, death| {
            let told = told(&BootView {
                boot,
                pid: 1,
                version: String::new(),
                verdict: None,
                death,
                named: Vec::new(),
            });
            (told.at, told.how)
        };
        let said = |at, text: &str| (Timestamp(at), text.to_owned());
        let broken = || boot(true, Some("retention"));
        let panicked = "handed over, because retention had panicked";
        assert_eq!(how(broken(), Some(death.clone())), said(3, panicked));
        assert_eq!(how(broken(), None), said(2, panicked));
        let seen = how(boot(false, None), Some(death));
        assert_eq!(seen, said(3, "exited with code 15"));
        let unseen = how(boot(false, None), None);
        assert_eq!(unseen, said(2, "died, and nobody saw how"));
    }

    #[test]
    fn an_end_names_the_jobs_in_whose_steps_it_came() {
        let named: Vec<_> = [3, 4].map(|n| JobId(uuid::Uuid::from_u128(n))).to_vec();
        let told = told(&BootView {
            boot: boot(false, None),
            pid: 1,
            version: String::new(),
            verdict: None,
            death: None,
            named: named.clone(),
        });
        assert_eq!(told.named, named);
    }
}

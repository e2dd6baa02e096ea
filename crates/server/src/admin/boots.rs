//! Lives of broker processes, as an operator sees them.

use evenkeel_core::boot::DeathRecord;
use evenkeel_core::ids::BootId;
use evenkeel_store::seam::BootView;

use super::jobs::{bad, number, pairs, time};
use super::types::{Boot, BootList, Death};
use super::{AdminState, Problem};

const DEFAULT_LIMIT: u32 = 50;
const MAX_LIMIT: u32 = 500;

impl AdminState {
    pub(super) async fn boots(&self, query: Option<&str>) -> Result<BootList, Problem> {
        let limit = limit(query)?;
        let found = self.engine.read().boots(limit).await?;
        let own = self.engine.boot();
        Ok(BootList {
            boots: found.into_iter().map(|view| boot(view, own)).collect(),
        })
    }
}

fn limit(query: Option<&str>) -> Result<u32, Problem> {
    let mut limit = DEFAULT_LIMIT;
    for (name, value) in pairs(query)? {
        match name.as_str() {
            "limit" => limit = number("limit", &value, MAX_LIMIT)?,
            other => return Err(bad(other, "is unknown; known is limit")),
        }
    }
    Ok(limit)
}

fn boot(view: BootView, own: BootId) -> Boot {
    let BootView {
        boot,
        pid,
        version,
        verdict,
        death,
        named,
    } = view;
    Boot {
        id: boot.id,
        present: boot.id == own,
        started_at: time(boot.started_at),
        seen_at: time(boot.seen_at),
        ended_at: death.as_ref().map(|death| time(death.ended_at)),
        drained_at: boot.drained_at.map(time),
        broke: boot.broke,
        pid,
        version,
        death: death.map(self::death),
        verdict,
        named,
    }
}

fn death(death: DeathRecord) -> Death {
    Death {
        text: death.to_string(),
        exit_code: death.exit_code,
        signal: death.signal,
        core_dumped: death.core_dumped,
        asked_to_end: death.asked_to_end,
        killed_by_watchdog: death.killed_by_watchdog,
        peak_memory: death.peak_memory,
        cpu_millis: death.cpu_millis,
        own_oom: death.own_oom,
        host_oom: death.host_oom,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_has_bounds_and_nothing_else_is_known() {
        assert_eq!(limit(None).unwrap(), DEFAULT_LIMIT);
        assert_eq!(limit(Some("limit=7")).unwrap(), 7);
        for wrong in ["limit=0", "limit=501", "limit=x", "before=1"] {
            assert!(limit(Some(wrong)).is_err(), "{wrong}");
        }
    }
}

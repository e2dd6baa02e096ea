//! `evenkeel hold` and `evenkeel release`.

use evenkeel_server::admin::types::{HoldRequest, Holding};

use super::admin::AdminClient;
use crate::cli::AdminArgs;
use crate::fail::Failure;
use crate::output::{self, shown};

pub(crate) async fn hold(reason: Option<String>, args: &AdminArgs) -> Result<(), Failure> {
    let client = AdminClient::new(args)?;
    let holding = client
        .post_with(&["admin", "v1", "hold"], &HoldRequest { reason })
        .await?;
    tell(args, &holding)
}

pub(crate) async fn release(args: &AdminArgs) -> Result<(), Failure> {
    let client = AdminClient::new(args)?;
    let holding = client.post(&["admin", "v1", "release"]).await?;
    tell(args, &holding)
}

fn tell(args: &AdminArgs, holding: &Holding) -> Result<(), Failure> {
    if args.format.json {
        return output::json(holding);
    }
    let mut lines = vec![shown(&holding.description)];
    lines.extend(holding.holds.iter().map(|hold| {
        let reason = shown(&hold.reason);
        match hold.ends_at {
            Some(at) => format!(
                "since {}, until {at} if nothing more goes wrong: {reason}",
                hold.since
            ),
            None => format!("since {}, until `evenkeel release`: {reason}", hold.since),
        }
    }));
    output::data(&lines.join("\n"))
}

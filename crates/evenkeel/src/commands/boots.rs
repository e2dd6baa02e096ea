//! `evenkeel boots`.

use evenkeel_server::admin::types::{Boot, BootList};

use super::admin::AdminClient;
use crate::cli::BootsArgs;
use crate::fail::Failure;
use crate::output;

pub(crate) async fn run(args: &BootsArgs) -> Result<(), Failure> {
    let client = AdminClient::new(&args.admin)?;
    let query = [("limit", args.limit.to_string())];
    let list: BootList = client.get(&["admin", "v1", "boots"], &query).await?;
    if args.admin.format.json {
        return output::json(&list);
    }
    output::table(
        &["BOOT", "STARTED", "ENDED", "HOW", "VERDICT", "IN A STEP OF"],
        list.boots.iter().map(row),
    )
}

fn row(boot: &Boot) -> Vec<String> {
    vec![
        boot.id.to_string(),
        second(boot.started_at),
        ended(boot),
        how(boot),
        boot.verdict.clone().unwrap_or_else(|| "-".to_owned()),
        named(boot),
    ]
}

/// The jobs in whose steps it died.
fn named(boot: &Boot) -> String {
    match boot.named.as_slice() {
        [] => "-".to_owned(),
        [one] => one.to_string(),
        [one, more @ ..] => format!("{one} and {} more", more.len()),
    }
}

fn second(at: jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Of a boot whose end nobody saw only the last sign of life is known.
fn ended(boot: &Boot) -> String {
    match boot.ended_at {
        _ if boot.present => "-".to_owned(),
        Some(at) => second(at),
        None => format!("after {}", second(boot.seen_at)),
    }
}

fn how(boot: &Boot) -> String {
    match (&boot.death, &boot.broke) {
        _ if boot.present => "this one".to_owned(),
        (Some(death), None) => death.text.clone(),
        (Some(death), Some(what)) => format!("{}: {what} had panicked", death.text),
        (None, Some(what)) => format!("handed over: {what} had panicked"),
        (None, None) if boot.drained_at.is_some() => "handed over".to_owned(),
        (None, None) => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot() -> Boot {
        Boot {
            id: evenkeel_core::ids::BootId(uuid::Uuid::from_u128(1)),
            present: false,
            started_at: jiff::Timestamp::UNIX_EPOCH,
            seen_at: jiff::Timestamp::UNIX_EPOCH,
            ended_at: None,
            drained_at: None,
            broke: None,
            pid: 7,
            version: "0".to_owned(),
            death: None,
            verdict: None,
            named: Vec::new(),
        }
    }

    #[test]
    fn a_boot_whose_end_nobody_saw_is_told_by_its_last_sign_of_life() {
        let row = row(&boot());
        assert_eq!(
            row[2..],
            ["after 1970-01-01T00:00:00Z", "unknown", "-", "-"]
        );
    }

    #[test]
    fn a_boot_of_which_a_part_broke_is_told_so_with_a_warden_and_without() {
        let broken = Boot {
            broke: Some("the claimer".to_owned()),
            drained_at: Some(jiff::Timestamp::UNIX_EPOCH),
            ..boot()
        };
        assert_eq!(how(&broken), "handed over: the claimer had panicked");
        let asked = Boot {
            broke: None,
            ..broken
        };
        assert_eq!(how(&asked), "handed over");
    }

    #[test]
    fn the_boot_that_answers_has_not_ended() {
        let present = Boot {
            present: true,
            ..boot()
        };
        assert_eq!(row(&present)[2..], ["-", "this one", "-", "-"]);
    }
}

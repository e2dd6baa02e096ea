//! The actions: what is run, for how long, and how often.

use std::collections::BTreeMap;
use std::time::Duration;

use super::field::{Field, Fields};
use super::names::shown;
use super::{ActionSpec, AsyncMode, FileFact, units};
use crate::action::Action;

const MAX_WORDS: usize = 64;
const MAX_WORD_BYTES: usize = 4096;
const MIN_TIMEOUT: Duration = Duration::from_millis(100);
/// As long as Cloud Foundry polls: a week.
const MAX_TIMEOUT: Duration = Duration::from_hours(7 * 24);
const MAX_RETRIES: u64 = 100;
/// `osb.sync_limit` unless the operator set another.
const SYNC_LIMIT: Duration = Duration::from_secs(50);

type Files<'f> = &'f dyn Fn(&str) -> Option<FileFact>;

pub(super) fn read(field: &Field<'_>, files: Files<'_>) -> Option<BTreeMap<Action, ActionSpec>> {
    let fields = field.fields(&["provision", "update", "bind", "unbind", "deprovision"])?;
    let mut actions = BTreeMap::new();
    let mut all_good = true;
    for action in Action::ALL {
        let is_required = matches!(action, Action::Provision | Action::Deprovision);
        let spec = if is_required {
            fields
                .need(action.as_str())
                .and_then(|f| spec(&f, files))
                .map(Some)
        } else {
            fields.maybe(action.as_str(), |f| spec(f, files))
        };
        match spec {
            Some(Some(spec)) => {
                actions.insert(action, spec);
            }
            Some(None) => {}
            None => all_good = false,
        }
    }
    if !all_good {
        return None;
    }
    warn_lone(&fields);
    Some(actions)
}

/// `bind` and `unbind` belong together.
fn warn_lone(fields: &Fields<'_>) {
    match (fields.get("bind"), fields.get("unbind")) {
        (Some(bind), None) => bind.warn(
            "there is no `unbind` action",
            "what `bind` makes is never taken back: add actions.unbind",
        ),
        (None, Some(unbind)) => unbind.warn(
            "there is no `bind` action",
            "bindings hand out the credentials of provision; add actions.bind or remove this",
        ),
        (Some(_), Some(_)) | (None, None) => {}
    }
}

fn spec(field: &Field<'_>, files: Files<'_>) -> Option<ActionSpec> {
    const MODES: [(&str, AsyncMode); 3] = [
        ("required", AsyncMode::Required),
        ("optional", AsyncMode::Optional),
        ("unsupported", AsyncMode::Unsupported),
    ];
    let fields = field.fields(&["command", "timeout", "async", "retries"])?;
    let command = fields.need("command").and_then(|f| command(&f, files));
    let timeout = fields.maybe("timeout", |f| f.duration(MIN_TIMEOUT..=MAX_TIMEOUT));
    let async_mode = fields.maybe("async", |f| f.one_of(&MODES));
    let retries = fields.maybe("retries", |f| f.whole(0..=MAX_RETRIES));
    let spec = ActionSpec {
        command: command?,
        timeout: timeout?,
        async_mode: async_mode?.unwrap_or_default(),
        retries: u32::try_from(retries?.unwrap_or(0)).ok()?,
    };
    let is_cut = spec.async_mode == AsyncMode::Unsupported
        && spec.timeout.is_some_and(|timeout| timeout > SYNC_LIMIT);
    if let Some(place) = fields.get("timeout").filter(|_| is_cut) {
        let limit = units::spoken(SYNC_LIMIT);
        place.warn(
            format!("a synchronous request is cancelled after sync_limit, {limit} unless set"),
            "write async: optional, or a shorter timeout",
        );
    }
    Some(spec)
}

fn command(field: &Field<'_>, files: Files<'_>) -> Option<Vec<String>> {
    let words = field.list()?;
    if words.len() > MAX_WORDS {
        field.error(format!(
            "{} words are more than the limit of {MAX_WORDS}",
            words.len()
        ));
        return None;
    }
    let Some(first) = words.first() else {
        field.error_with(
            "must not be empty",
            "write the program first: [./provision]",
        );
        return None;
    };
    let good = first.text().and_then(|text| program(first, text, files));
    let words: Vec<_> = words.iter().map(word).collect();
    good.and(words.into_iter().collect())
}

fn word(field: &Field<'_>) -> Option<String> {
    let word = field.any_text()?;
    if word.len() > MAX_WORD_BYTES {
        field.error(format!(
            "has {} bytes, more than the limit of {MAX_WORD_BYTES}",
            word.len()
        ));
        return None;
    }
    Some(word.to_owned())
}

fn program(field: &Field<'_>, text: &str, files: Files<'_>) -> Option<()> {
    if !text.contains('/') {
        if files(text).is_some() {
            field.warn(
                format!("`{}` is looked up in PATH, not in the bundle", shown(text)),
                format!("for the file of the bundle write ./{}", shown(text)),
            );
        }
        return Some(());
    }
    if text.starts_with('/') {
        field.error_with(
            "must be a path in the bundle, or a name that is looked up in PATH",
            "write the name alone, such as [sh, …]; env.PATH can name further folders",
        );
        return None;
    }
    let parts: Vec<&str> = text
        .split('/')
        .filter(|part| !matches!(*part, "" | "."))
        .collect();
    if parts.contains(&"..") {
        field.error("must not lead out of the bundle with `..`");
        return None;
    }
    let path = parts.join("/");
    match files(&path) {
        Some(FileFact { executable: true }) => Some(()),
        Some(FileFact { executable: false }) => {
            let message = format!("`{}` is not executable", shown(&path));
            field.error_with(message, format!("run chmod +x {}", shown(&path)));
            None
        }
        None => {
            field.error(format!("there is no file `{}` in the bundle", shown(&path)));
            None
        }
    }
}

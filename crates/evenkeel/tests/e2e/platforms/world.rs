//! What really exists: a folder that the bundles' actions keep, and that no broker looks into.
//!
//! | in the folder | what it is |
//! |---|---|
//! | `instances/ID`, `bindings/ID.BINDING` | what exists: the request that made it, the output that it gave |
//! | `fates/ACTION.ID[.BINDING]` | what the test wants to happen: a word for each attempt, the last one for all that follow |
//! | `marks/starts`, `marks/agains` | `ACTION JOB ATTEMPT` of every start, and of every end that asks for another attempt |
//! | `marks/fails`, `marks/lefts` | `ACTION TARGET` that may have changed nothing; bindings that a deprovision found |
//! | `marks/decreed` | jobs whose action said that it had failed, because it was to |
//! | `marks/wrongs` | what an action should never have seen |

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

/// How the actions of an offering answer.
pub(crate) const OFFERINGS: [(&str, &str, &str); 3] = [
    ("queue", "required", "required"),
    ("mixed", "optional", "unsupported"),
    ("counter", "unsupported", "unsupported"),
];

pub(crate) const PLANS: [&str; 2] = ["small", "large"];

const ACTION: &str = r#"#!/bin/sh
# Makes it so, or takes it back. Only builtins where there is a choice: lives are many.
set -eu
mark() { printf '%s\n' "$2" >>"$WORLD/marks/$1"; }
me="$EVENKEEL_ACTION $EVENKEEL_JOB_ID $EVENKEEL_ATTEMPT_ID"
target=$EVENKEEL_INSTANCE_ID${EVENKEEL_BINDING_ID:+.$EVENKEEL_BINDING_ID}
mark starts "$me"

# An instance's actions are alone with it; those of bindings are alone with their binding.
exec 8>>"$WORLD/locks/$EVENKEEL_INSTANCE_ID" 9>>"$WORLD/locks/$target.own"
case $EVENKEEL_ACTION in
    bind | unbind) flock -n -s 8 && flock -n 9 || mark wrongs "two at once: $me" ;;
    *) flock -n 8 || mark wrongs "two at once: $me" ;;
esac

fate=ok
if [ -e "$WORLD/fates/$EVENKEEL_ACTION.$target" ]; then
    read -r words <"$WORLD/fates/$EVENKEEL_ACTION.$target"
    nth=0
    for word in $words; do
        fate=$word nth=$((nth + 1))
        [ "$nth" -lt "$EVENKEEL_ATTEMPT" ] || break
    done
fi
case $fate in
    again) mark agains "$me"; exit 75 ;;
    crash) mark agains "$me"; kill -s SEGV $$ ;;
    slow-*)
        # Who is not waited for may be stopped.
        [ "${fate#slow-}" != 2.3 ] || mark fails "$EVENKEEL_ACTION $target"
        sleep "${fate#slow-}" ;;
    # Goes on although it is asked to end: what it makes comes after whoever did not wait for it.
    stubborn) trap '' TERM; sleep 0.4 ;;
    fail) mark fails "$EVENKEEL_ACTION $target"; mark decreed "$EVENKEEL_JOB_ID"; exit 1 ;;
    ok | half) ;;
    *) mark wrongs "unknown fate $fate: $me" ;;
esac

instance=$WORLD/instances/$EVENKEEL_INSTANCE_ID
make() {
    { cat "$EVENKEEL_REQUEST"; echo; cat "$EVENKEEL_OUTPUT"; } >"$WORLD/new/$EVENKEEL_ATTEMPT_ID"
    mv "$WORLD/new/$EVENKEEL_ATTEMPT_ID" "$1"
}
case $EVENKEEL_ACTION in
    provision | update)
        [ "$EVENKEEL_ACTION" = provision ] || [ -e "$instance" ] || mark wrongs "nothing to update: $me"
        printf '{"dashboard_url": "https://things.example/%s"}' "$EVENKEEL_INSTANCE_ID" >"$EVENKEEL_OUTPUT"
        make "$instance" ;;
    bind)
        [ -e "$instance" ] || mark wrongs "nothing to bind: $me"
        printf '{"credentials": {"binding": "%s", "password": "%s"}}' \
            "$EVENKEEL_BINDING_ID" "$EVENKEEL_ATTEMPT_ID" >"$EVENKEEL_OUTPUT"
        make "$WORLD/bindings/$target" ;;
    unbind) rm -f "$WORLD/bindings/$target" ;;
    deprovision)
        # Of an unbind that failed the binding may be left; of no other.
        for left in "$WORLD/bindings/$EVENKEEL_INSTANCE_ID".*; do
            [ -e "$left" ] || continue
            mark lefts "${left##*/}"
            rm -f "$left"
        done
        rm -f "$instance" ;;
esac
[ "$fate" != half ] || { mark decreed "$EVENKEEL_JOB_ID"; exit 1; }
"#;

/// The folder, and the bundles whose actions work in it.
#[derive(Debug)]
pub(crate) struct World {
    folder: TempDir,
}

/// Something that exists: what it was asked for by, and what was given out.
#[derive(Debug)]
pub(crate) struct Thing {
    pub(crate) request: Value,
    pub(crate) output: Value,
}

impl World {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("evenkeel-world-")
            .tempdir()
            .unwrap();
        for name in [
            "instances",
            "bindings",
            "fates",
            "marks",
            "locks",
            "new",
            "bundles",
        ] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let world = Self { folder };
        for offering in OFFERINGS {
            world.write_bundle(offering);
        }
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn bundles(&self) -> Vec<PathBuf> {
        OFFERINGS
            .map(|(name, ..)| self.path("bundles").join(name))
            .into()
    }

    fn write_bundle(&self, (name, instances, bindings): (&str, &str, &str)) {
        let folder = self.path("bundles").join(name);
        fs::create_dir(&folder).unwrap();
        let mut text = format!(
            "bundle: 1\n\
             service: {{name: {name}, description: Things, bindable: true, plan_updateable: true, \
             allow_context_updates: true}}\n\
             plans:\n"
        );
        for plan in PLANS {
            text += &format!("  - {{name: {plan}, description: A plan}}\n");
        }
        text += "actions:\n";
        for (action, mode) in [
            ("provision", instances),
            ("update", instances),
            ("deprovision", instances),
            ("bind", bindings),
            ("unbind", bindings),
        ] {
            text += &format!(
                "  {action}: {{command: [./action], timeout: 1m, async: {mode}, retries: 5}}\n"
            );
        }
        text += &format!(
            "env: {{WORLD: {:?}}}\n",
            self.folder.path().display().to_string()
        );
        fs::write(folder.join("bundle.yml"), text).unwrap();
        fs::write(folder.join("action"), ACTION).unwrap();
        fs::set_permissions(folder.join("action"), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Says what is to happen the next time that an action is tried on a target (`ID` or
    /// `ID.BINDING`). An action that has begun has read its own already.
    pub(crate) fn decree(&self, action: &str, target: &str, fate: &str) {
        let name = format!("{action}.{target}");
        let new = self.path("new").join(&name);
        fs::write(&new, format!("{fate}\n")).unwrap();
        fs::rename(new, self.path("fates").join(name)).unwrap();
    }

    /// What exists, by `ID` or `ID.BINDING`.
    pub(crate) fn things(&self, kind: &str) -> BTreeMap<String, Thing> {
        let read = |path: &Path| {
            let text = fs::read_to_string(path).unwrap();
            let (request, output) = text.trim_end().rsplit_once('\n').unwrap();
            Thing {
                request: serde_json::from_str(request).unwrap(),
                output: serde_json::from_str(output).unwrap(),
            }
        };
        fs::read_dir(self.path(kind))
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| {
                (
                    entry.file_name().into_string().unwrap(),
                    read(&entry.path()),
                )
            })
            .collect()
    }

    /// Lines of a file of marks.
    pub(crate) fn marks(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path("marks").join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Bindings go before their instance, but those whose unbind failed.
    pub(crate) fn unbinds_came_first(&self) {
        let fails: BTreeSet<_> = self.marks("fails").into_iter().collect();
        for left in self.marks("lefts") {
            let excused = fails.contains(&format!("unbind {left}"));
            assert!(excused, "{left} was left to the deprovision");
        }
    }

    /// Nobody fails but who was to.
    pub(crate) fn failures_were_decreed<'a>(&self, jobs: impl IntoIterator<Item = &'a Value>) {
        let decreed: BTreeSet<_> = self.marks("decreed").into_iter().collect();
        for job in jobs.into_iter().filter(|job| job["state"] == "failed") {
            let id = job["id"].as_str().unwrap();
            assert!(decreed.contains(id), "failed, and was not to: {job:#}");
        }
    }

    /// Starts by job, after asserting that each was called for: no attempt begins twice, and none
    /// follows but where the one before asked for it or was killed by the test (`killed` says how
    /// often). That a broker died is no reason.
    pub(crate) fn starts(&self, killed: impl Fn(&str) -> usize) -> BTreeMap<String, usize> {
        assert_eq!(self.marks("wrongs"), Vec::<String>::new());
        let mut attempts = BTreeSet::new();
        let mut starts = BTreeMap::<String, usize>::new();
        for line in self.marks("starts") {
            let job = line.split(' ').nth(1).unwrap().to_owned();
            assert!(attempts.insert(line.clone()), "started twice: {line}");
            *starts.entry(job).or_default() += 1;
        }
        let mut agains = BTreeMap::<String, usize>::new();
        for line in self.marks("agains") {
            *agains
                .entry(line.split(' ').nth(1).unwrap().to_owned())
                .or_default() += 1;
        }
        for (job, times) in &starts {
            let asked = agains.get(job).copied().unwrap_or(0);
            let killed = killed(job);
            assert!(
                *times <= 1 + asked + killed,
                "{job} was started {times} times, asked {asked} times for another and was killed \
                 {killed} times"
            );
        }
        starts
    }
}

//! What is left when everything has ended, as the operating system and the database show it.

use std::fs;

use rusqlite::{Connection, OpenFlags};

use crate::harness::eventually;
use crate::stage::Stage;

/// As it is where nobody sets it.
const LOSS_LIMIT: u32 = 3;

/// See the module.
#[derive(Debug)]
pub(crate) struct World {
    database: Connection,
    /// Folders of instances that keep a state.
    states: usize,
    /// The boot that ended before the life began, whatever it was doing.
    first_boot: String,
}

impl World {
    /// Looks at the world of a broker that has nothing more to do, and ends it.
    pub(crate) async fn left_by(stage: &mut Stage, first_boot: String) -> Self {
        stage.broker.nothing_left().await;
        let data = stage.broker.data();
        let names = |folder: &str| -> Vec<_> {
            let entries = fs::read_dir(data.join(folder)).into_iter().flatten();
            entries.map(|entry| entry.unwrap().file_name()).collect()
        };
        eventually("no run folder is left", || {
            std::future::ready(names("run/runs").is_empty().then_some(()))
        })
        .await;
        // One lock and one black box: those of the boot that lives.
        eventually("nothing of dead boots is left", || {
            std::future::ready((names("run/boots").len() == 2).then_some(()))
        })
        .await;
        let states = names("state").len();
        assert!(stage.broker.terminate().success());
        let path = data.join("evenkeel.db");
        let database = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE);
        let world = Self {
            database: database.unwrap(),
            states,
            first_boot,
        };
        world.is_consistent();
        world
    }

    fn texts(&self, sql: &str) -> Vec<String> {
        let mut statement = self.database.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }

    pub(crate) fn count(&self, sql: &str) -> u32 {
        let sql = format!("SELECT count(*) FROM {sql}");
        self.database.query_row(&sql, [], |row| row.get(0)).unwrap()
    }

    fn is_consistent(&self) {
        assert_eq!(self.texts("PRAGMA integrity_check"), ["ok"]);
        assert_eq!(self.count("pragma_foreign_key_check"), 0);
        assert_eq!(self.count("attempts WHERE ended_at IS NULL"), 0);
        // All verdicts are given but that on the boot which has just ended.
        assert!(self.count("boots WHERE closed_at IS NULL") <= 1);
        assert_eq!(
            self.count("boots WHERE closed_at IS NULL AND drained_at IS NULL"),
            0
        );
        let open = "('queued', 'running', 'backoff')";
        assert_eq!(self.count(&format!("jobs WHERE state IN {open}")), 0);
        // Those that were only near are charged with exposures, and hardly ever more: a kill that
        // comes from nobody's step may hit a suspect's exclusive one.
        let near = "audit JOIN instances ON uid = instance_uid \
                    WHERE what = 'charge' AND instance_id <> 'victim'";
        let near = |charge| self.count(&format!("{near} AND detail LIKE '{charge}%'"));
        assert_eq!(near("crash"), 0);
        assert!(near("loss") < LOSS_LIMIT);
    }

    /// Every job ended well, and nothing is left of the victim.
    pub(crate) fn all_succeeded(&self) {
        assert_eq!(self.count("jobs WHERE state <> 'succeeded'"), 0);
        // Success clears every account.
        let charged = "crashes + losses + exposures + disruptions + suspect > 0";
        assert_eq!(self.count(&format!("budgets WHERE {charged}")), 0);
        assert_eq!(self.states, 2, "those that were beside it are still there");
    }

    /// How often somebody was charged for what happened in the life.
    pub(crate) fn charges_in_all(&self) -> u32 {
        self.charged("true")
    }

    /// How many deaths of brokers were counted against the victim.
    pub(crate) fn exposures_of_the_victim(&self) -> u32 {
        self.charged("instance_id = 'victim' AND detail LIKE 'exposure%'")
    }

    fn charged(&self, how: &str) -> u32 {
        self.count(&format!(
            "audit JOIN instances ON uid = instance_uid \
             WHERE what = 'charge' AND detail NOT LIKE '%{}%' AND {how}",
            self.first_boot
        ))
    }

    /// What the attempts of the victim's jobs cost, in their order.
    pub(crate) fn charges(&self, action: &str) -> Vec<String> {
        self.texts(&format!(
            "SELECT charge FROM attempts JOIN jobs ON jobs.id = job_id \
             JOIN instances ON instances.uid = instance_uid \
             WHERE instance_id = 'victim' AND action = '{action}' ORDER BY jobs.id, ordinal"
        ))
    }

    /// [`Self::charges`] but for what the death of a broker costs whoever is near: a broker may die
    /// over the end of one job when the next one has begun, or over a job beside it.
    pub(crate) fn own_charges(&self, action: &str) -> Vec<String> {
        let mut charges = self.charges(action);
        charges.retain(|charge| !["disruption", "exposure"].contains(&charge.as_str()));
        charges
    }
}

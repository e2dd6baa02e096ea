-- All rows of the store (DESIGN "What is committed when"). Times are milliseconds since the Unix
-- epoch; ids are UUIDs as text; digests are hexadecimal. Columns of type BLOB are sealed:
-- nothing secret stands in any other column.

-- Small facts about the store itself.
CREATE TABLE meta (
    key TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- A known text under the key in use: tells a wrong key file before anything is touched.
CREATE TABLE canary (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    sealed BLOB NOT NULL
) STRICT;

-- The number of the last group commit: a COMMIT whose answer was lost is read back by it.
CREATE TABLE commits (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    last INTEGER NOT NULL
) STRICT;
INSERT INTO commits (id, last) VALUES (1, 0);

-- Lives of service instances. A life that is over stays as a tombstone, without secrets, and
-- answers polls while the platform's id may live again.
CREATE TABLE instances (
    uid TEXT NOT NULL PRIMARY KEY,
    instance_id TEXT NOT NULL,
    platform TEXT NOT NULL,
    service_id TEXT NOT NULL,
    -- Applied; the desired one while the instance is being made. So are parameters, context
    -- and maintenance_version.
    plan_id TEXT NOT NULL,
    maintenance_version TEXT,
    bundle TEXT NOT NULL,
    -- The order that asks for the instance as it is.
    request_digest TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN
        ('creating', 'ready', 'create_failed', 'deleting', 'delete_failed', 'deleted')),
    -- Grows with every change of what is applied: who decides on what was read says which.
    revision INTEGER NOT NULL DEFAULT 0 CHECK (revision >= 0),
    organization_guid TEXT,
    space_guid TEXT,
    parameters BLOB,
    context BLOB,
    outputs BLOB,
    data BLOB,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    deleted_at INTEGER,
    CHECK ((status = 'deleted') = (deleted_at IS NOT NULL)),
    CHECK (deleted_at IS NULL OR
        (parameters IS NULL AND context IS NULL AND outputs IS NULL AND data IS NULL))
) STRICT;
CREATE UNIQUE INDEX instances_live ON instances (instance_id) WHERE deleted_at IS NULL;
CREATE INDEX instances_lives ON instances (instance_id);
CREATE INDEX instances_deleted ON instances (deleted_at) WHERE deleted_at IS NOT NULL;

-- Lives of service bindings.
CREATE TABLE bindings (
    uid TEXT NOT NULL PRIMARY KEY,
    instance_uid TEXT NOT NULL REFERENCES instances (uid),
    binding_id TEXT NOT NULL CHECK (binding_id <> ''),
    platform TEXT NOT NULL,
    request_digest TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN
        ('creating', 'ready', 'create_failed', 'deleting', 'delete_failed', 'deleted')),
    parameters BLOB,
    bind_resource BLOB,
    context BLOB,
    outputs BLOB,
    data BLOB,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    deleted_at INTEGER,
    CHECK ((status = 'deleted') = (deleted_at IS NOT NULL)),
    CHECK (deleted_at IS NULL OR (parameters IS NULL AND bind_resource IS NULL
        AND context IS NULL AND outputs IS NULL AND data IS NULL))
) STRICT;
CREATE UNIQUE INDEX bindings_live ON bindings (instance_uid, binding_id)
    WHERE deleted_at IS NULL;
CREATE INDEX bindings_lives ON bindings (instance_uid, binding_id);
CREATE INDEX bindings_deleted ON bindings (deleted_at) WHERE deleted_at IS NOT NULL;

-- Typed headers: all that claims and recovery need, and no secret.
CREATE TABLE jobs (
    id TEXT NOT NULL PRIMARY KEY,
    instance_uid TEXT NOT NULL REFERENCES instances (uid),
    binding_uid TEXT REFERENCES bindings (uid),
    binding_id TEXT,
    action TEXT NOT NULL CHECK (action IN
        ('provision', 'update', 'deprovision', 'bind', 'unbind')),
    service_id TEXT NOT NULL,
    -- Desired; applied to the instance when the job succeeds. Parameters: in the sealed body.
    plan_id TEXT NOT NULL,
    maintenance_version TEXT,
    bundle TEXT NOT NULL,
    platform TEXT NOT NULL,
    request_digest TEXT NOT NULL,
    -- Of an update: the instance's request_digest once it has succeeded.
    becomes TEXT,
    -- The instance's revision that the body was made from.
    base_revision INTEGER,
    codec_version INTEGER NOT NULL CHECK (codec_version >= 1),
    created_at INTEGER NOT NULL,
    deadline_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    token INTEGER NOT NULL DEFAULT 0 CHECK (token >= 0),
    attempts INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    tempfails INTEGER NOT NULL DEFAULT 0 CHECK (tempfails BETWEEN 0 AND attempts),
    retries INTEGER NOT NULL CHECK (retries >= 0),
    superseded_by TEXT,
    retry_of TEXT,
    -- Jobs of job_after that are not final.
    blocked INTEGER NOT NULL DEFAULT 0 CHECK (blocked >= 0),
    -- Repeats the budget's flag where claims look.
    suspect INTEGER NOT NULL DEFAULT 0 CHECK (suspect IN (0, 1)),
    progress TEXT,
    state TEXT NOT NULL CHECK (state IN
        ('queued', 'running', 'backoff', 'succeeded', 'failed', 'cancelled', 'quarantined')),
    queued_at INTEGER,
    attempt_id TEXT,
    attempt_ordinal INTEGER,
    boot_id TEXT,
    run_root TEXT,
    claimed_at INTEGER,
    solo_ms INTEGER,
    -- Brokers that died near the attempt under way, as far as they are counted (JSON).
    deaths TEXT,
    stop TEXT,
    next_at INTEGER,
    finished_at INTEGER,
    reason TEXT,
    message TEXT,
    discarded_at INTEGER,
    CHECK ((binding_uid IS NULL) = (binding_id IS NULL)),
    CHECK ((action IN ('bind', 'unbind')) = (binding_uid IS NOT NULL)),
    -- Each state carries its own data and nobody else's (evenkeel_core::job::State).
    CHECK ((state = 'queued') = (queued_at IS NOT NULL)),
    CHECK ((state = 'running') = (attempt_id IS NOT NULL)),
    CHECK ((state = 'running') = (attempt_ordinal IS NOT NULL)),
    CHECK ((state = 'running') = (boot_id IS NOT NULL)),
    CHECK ((state = 'running') = (run_root IS NOT NULL)),
    CHECK ((state = 'running') = (claimed_at IS NOT NULL)),
    CHECK (state = 'running' OR (solo_ms IS NULL AND stop IS NULL AND deaths IS NULL)),
    CHECK (state <> 'running' OR
        (attempts >= 1 AND attempt_ordinal = attempts AND token >= 1 AND blocked = 0)),
    CHECK ((state = 'backoff') = (next_at IS NOT NULL)),
    CHECK (state <> 'backoff' OR (attempts >= 1 AND blocked = 0)),
    CHECK ((state IN ('succeeded', 'failed', 'cancelled', 'quarantined'))
        = (finished_at IS NOT NULL)),
    CHECK ((state IN ('failed', 'cancelled', 'quarantined')) = (reason IS NOT NULL)),
    CHECK (message IS NULL OR state = 'failed'),
    CHECK (discarded_at IS NULL OR state = 'quarantined')
) STRICT;

-- Order on one instance (DESIGN "Order on one instance").
CREATE UNIQUE INDEX jobs_one_per_instance ON jobs (instance_uid)
    WHERE binding_uid IS NULL AND superseded_by IS NULL
        AND state IN ('queued', 'running', 'backoff');
CREATE UNIQUE INDEX jobs_one_per_binding ON jobs (binding_uid)
    WHERE binding_uid IS NOT NULL AND superseded_by IS NULL
        AND state IN ('queued', 'running', 'backoff');
CREATE INDEX jobs_unfinished ON jobs (instance_uid)
    WHERE state IN ('queued', 'running', 'backoff');
CREATE INDEX jobs_instance ON jobs (instance_uid, id);
CREATE INDEX jobs_binding ON jobs (binding_uid) WHERE binding_uid IS NOT NULL;
CREATE INDEX jobs_state ON jobs (state, id);
CREATE INDEX jobs_strange ON jobs (id) WHERE state NOT IN
    ('queued', 'running', 'backoff', 'succeeded', 'failed', 'cancelled', 'quarantined');
CREATE INDEX jobs_service ON jobs (service_id, id);
-- Claims: the longest due first within a service.
CREATE INDEX jobs_queued ON jobs (suspect, service_id, queued_at, id, codec_version)
    WHERE state = 'queued' AND blocked = 0;
CREATE INDEX jobs_backoff ON jobs (suspect, service_id, next_at, id, codec_version)
    WHERE state = 'backoff';
CREATE INDEX jobs_suspects ON jobs (state, id) WHERE suspect = 1;
CREATE INDEX jobs_next ON jobs (next_at) WHERE state = 'backoff';
CREATE INDEX jobs_running ON jobs (service_id) WHERE state = 'running';
CREATE INDEX jobs_owner ON jobs (boot_id) WHERE state = 'running';
CREATE UNIQUE INDEX jobs_attempt ON jobs (attempt_id) WHERE attempt_id IS NOT NULL;
CREATE INDEX jobs_deadline ON jobs (deadline_at)
    WHERE state IN ('queued', 'running', 'backoff') AND stop IS NULL;
CREATE INDEX jobs_finished ON jobs (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX jobs_retry_of ON jobs (retry_of) WHERE retry_of IS NOT NULL;
CREATE INDEX jobs_superseded_by ON jobs (superseded_by) WHERE superseded_by IS NOT NULL;

CREATE TRIGGER jobs_final_stays_final BEFORE UPDATE OF state ON jobs
    WHEN OLD.state IN ('succeeded', 'failed', 'cancelled', 'quarantined')
        AND NEW.state <> OLD.state
BEGIN
    SELECT RAISE(ABORT, 'a final job stays as it is');
END;
CREATE TRIGGER jobs_token_grows BEFORE UPDATE OF token ON jobs WHEN NEW.token < OLD.token
BEGIN
    SELECT RAISE(ABORT, 'a token never shrinks');
END;

-- The wholly resolved inputs, sealed, apart from what recovery reads.
CREATE TABLE job_bodies (
    job_id TEXT NOT NULL PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
    sealed BLOB NOT NULL
) STRICT;

-- What has to be final before a job may be claimed.
CREATE TABLE job_after (
    job_id TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    after_id TEXT NOT NULL,
    PRIMARY KEY (job_id, after_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX job_after_waiting ON job_after (after_id);

-- One line for each try, with its end, evidence, charge and reason.
CREATE TABLE attempts (
    id TEXT NOT NULL PRIMARY KEY,
    job_id TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    ordinal INTEGER NOT NULL CHECK (ordinal >= 1),
    boot_id TEXT NOT NULL,
    run_root TEXT NOT NULL,
    solo INTEGER NOT NULL CHECK (solo IN (0, 1)),
    claimed_at INTEGER NOT NULL,
    started_at INTEGER,
    containment TEXT CHECK (containment IN ('pidns', 'cgroup', 'sweep')),
    -- Brokers that died near it, as far as they are counted (JSON).
    deaths TEXT,
    ended_at INTEGER,
    end_reason TEXT,
    evidence TEXT,
    charge TEXT CHECK (charge IN ('none', 'crash', 'exposure', 'loss', 'disruption')),
    ran_ms INTEGER,
    peak_memory INTEGER,
    cpu_ms INTEGER,
    -- What else is known of a bad end, as JSON (evenkeel_core::forensics). Nothing secret.
    forensics TEXT,
    UNIQUE (job_id, ordinal),
    CHECK ((ended_at IS NULL) = (end_reason IS NULL)),
    CHECK ((ended_at IS NULL) = (charge IS NULL))
) STRICT;
-- What died beside what: in the same moments, or with the same broker.
CREATE INDEX attempts_bad ON attempts (ended_at) WHERE charge IN ('crash', 'exposure', 'loss');
CREATE INDEX attempts_lost ON attempts (boot_id, ended_at) WHERE charge IN ('exposure', 'loss');

-- Accounts of charges. binding_id is '' for instance actions.
CREATE TABLE budgets (
    instance_uid TEXT NOT NULL REFERENCES instances (uid) ON DELETE CASCADE,
    binding_id TEXT NOT NULL,
    action TEXT NOT NULL,
    crashes INTEGER NOT NULL CHECK (crashes >= 0),
    losses INTEGER NOT NULL CHECK (losses >= 0),
    exposures INTEGER NOT NULL CHECK (exposures >= 0),
    disruptions INTEGER NOT NULL CHECK (disruptions >= 0),
    suspect INTEGER NOT NULL CHECK (suspect IN (0, 1)),
    longest_lost_ms INTEGER NOT NULL CHECK (longest_lost_ms >= 0),
    PRIMARY KEY (instance_uid, binding_id, action)
) STRICT, WITHOUT ROWID;

-- Lives of broker processes. lease_until is for stores that several hosts share.
CREATE TABLE boots (
    -- Their order: a clock may be set back.
    nth INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    run_root TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    pid INTEGER NOT NULL,
    host_boot TEXT NOT NULL,
    version TEXT NOT NULL,
    seen_at INTEGER NOT NULL,
    lease_until INTEGER,
    drained_at INTEGER,
    -- What had broken where it handed over for that, written with the drain mark.
    broke TEXT CHECK (broke IS NULL OR drained_at IS NOT NULL),
    closed_at INTEGER,
    verdict TEXT,
    -- What the rule of holds asks (evenkeel_core::hold): when a job was concluded first under it,
    -- the jobs that its black box names (a JSON list), and whether a hold that counted its death
    -- has ended since.
    concluded_at INTEGER,
    culprits TEXT,
    forgiven INTEGER NOT NULL DEFAULT 0 CHECK (forgiven IN (0, 1)),
    -- How it ended, as its warden saw it: JSON, without its last words.
    death TEXT,
    CHECK ((closed_at IS NULL) = (verdict IS NULL))
) STRICT;
CREATE INDEX boots_open ON boots (nth) WHERE closed_at IS NULL;

-- Why no new run starts, where that outlives a process (evenkeel_core::hold::Cause).
CREATE TABLE holds (
    cause TEXT NOT NULL PRIMARY KEY CHECK (cause IN ('hand', 'deaths')),
    reason TEXT NOT NULL,
    actor TEXT NOT NULL,
    since INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Whose turn it is: the service that was served longest ago comes first.
CREATE TABLE service_turns (
    service_id TEXT NOT NULL PRIMARY KEY,
    turn INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What was done by whom. Append-only: the one way to remove lines is retention, which names
-- its limit in meta ('purge_before') for the length of its transaction.
CREATE TABLE audit (
    seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    what TEXT NOT NULL,
    job_id TEXT,
    instance_uid TEXT,
    detail TEXT NOT NULL
) STRICT;
CREATE INDEX audit_job ON audit (job_id) WHERE job_id IS NOT NULL;
CREATE INDEX audit_at ON audit (at);
CREATE TRIGGER audit_is_never_changed BEFORE UPDATE ON audit
BEGIN
    SELECT RAISE(ABORT, 'audit lines are never changed');
END;
CREATE TRIGGER audit_is_only_purged BEFORE DELETE ON audit
    WHEN NOT EXISTS (SELECT 1 FROM meta
        WHERE key = 'purge_before' AND OLD.at < CAST(value AS INTEGER))
BEGIN
    SELECT RAISE(ABORT, 'audit lines are removed by retention only');
END;

-- What may have been left behind in the world outside.
CREATE TABLE leaks (
    seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('discarded_provision', 'forgotten_instance')),
    instance_uid TEXT NOT NULL,
    instance_id TEXT NOT NULL,
    service_id TEXT NOT NULL,
    job_id TEXT UNIQUE,
    detail TEXT NOT NULL,
    resolved_at INTEGER
) STRICT;
CREATE INDEX leaks_open ON leaks (seq) WHERE resolved_at IS NULL;

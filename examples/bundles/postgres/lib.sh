# shellcheck shell=sh
# What all five actions share. Sourced first by each of them.
set -eu
umask 077
here=${0%/*}
export LC_ALL=C

# Names on the server. A platform's ids are any text of any length; a name is at most 63 bytes.
# So: 128 bits of SHA-256 for the instance (35 bytes with the prefix), 96 for a binding within it.
digest() { printf '%s' "$1" | sha256sum | cut -c "1-$2"; }
db=ek_$(digest "$EVENKEEL_INSTANCE_ID" 32)
owner=${db}_owner
role=${db}_$(digest "${EVENKEEL_BINDING_ID:-}" 24)

progress() { printf '%s\n' "$1" >>"$EVENKEEL_PROGRESS"; }

# Both take a text of ours, in which JSON has nothing to escape.
fail() { conclude 1 "$1"; }
later() { conclude 75 "$1"; }
conclude() {
    echo "$2" >&2
    printf '{"error": {"message": "%s"}}\n' "$2" >"$EVENKEEL_OUTPUT"
    exit "$1"
}

command -v psql >/dev/null || fail 'psql is not installed where the broker runs.'
export PGSERVICEFILE="$TMPDIR/service" PGSERVICE=evenkeel PGCONNECT_TIMEOUT=10
trap 'rm -f "$PGSERVICEFILE"' EXIT
awk -f "$here/service.awk" <"$EVENKEEL_SECRETS/ADMIN_URL" >"$PGSERVICEFILE" ||
    fail 'The secret ADMIN_URL of this service is missing or not a connection URI.'

# What the owner of a database sets for it must not reach the administrator's session in it: not
# functions that shadow the built-in ones, no role, no time limit, no read-only mode.
export PGOPTIONS='-c search_path=pg_catalog -c role=none -c statement_timeout=0 -c default_transaction_read_only=off -c lock_timeout=30s -c client_min_messages=warning'
# The name under which begin.sql finds what an earlier attempt left running.
export PGAPPNAME="$db"
[ -z "${EVENKEEL_BINDING_ID:-}" ] || PGAPPNAME=$role

# sql FILE [psql's options]: runs sql/FILE as the administrator, or ends the action.
sql() {
    file=$1
    shift
    code=0
    psql -X -q -A -t --set=ON_ERROR_STOP=1 --set=VERBOSITY=verbose --set=db="$db" \
        --set=owner="$owner" --set=role="$role" "$@" -f "$here/sql/$file" 2>"$TMPDIR/errors" || code=$?
    cat "$TMPDIR/errors" >&2
    case $code in
        0) ;;
        2) refused ;;
        *) rejected "$file" ;;
    esac
}

# The server's word on a statement: which of them time may heal?
rejected() {
    state=$(sed -n 's/^psql:.*:[0-9]*: [^:]*:  \([0-9A-Z]\{5\}\): .*/\1/p' "$TMPDIR/errors" | tail -n 1)
    case $state in
        # Connections, resources, conflicts, locks, objects in use, an operator's intervention;
        # XX000 is how two changes of one catalog row at one time are told.
        08??? | 53??? | 40??? | 55006 | 55P03 | 57??? | XX000)
            later "The database server is busy (${1%.sql}, SQLSTATE $state)." ;;
        *) fail "The database server did not do what was asked (${1%.sql}, SQLSTATE ${state:-unknown})." ;;
    esac
}

# No session, or it was lost on the way.
refused() {
    ready=0
    pg_isready -q -t 10 || ready=$?
    case $ready in
        0) if psql -X -q -c '' 2>"$TMPDIR/errors"; then
               later 'The session on the database server was lost.'
           elif grep -qE 'too many clients|connection slots|starting up|shutting down|recovery mode' "$TMPDIR/errors"; then
               later 'The database server takes no more sessions at the moment.'
           fi
           fail "The database server refuses the broker's login." ;;
        1 | 2) later 'The database server cannot be reached or is starting.' ;;
        *) fail 'The secret ADMIN_URL of this service is not usable.' ;;
    esac
}

# drop_roles PREFIX: removes every role of this instance whose name begins so, with its sessions
# and whatever it owns or was granted, in each database where that is so.
drop_roles() {
    sql retire-roles.sql --set=prefix="$1"
    sql list-databases.sql --set=prefix="$1" >"$TMPDIR/databases"
    while IFS= read -r database; do
        sql drop-owned.sql --set=prefix="$1" --dbname="$database" </dev/null
    done <"$TMPDIR/databases"
    sql drop-roles.sql --set=prefix="$1"
}

#!/bin/sh
# Every action of the demo: notes its start, works for a moment, notes what it should not see.
# Builtins of the shell wherever there is a choice: runs are many.
set -eu
mark() { printf '%s\n' "$2" >>"$DEMO/$1"; }
me="$EVENKEEL_JOB_ID $EVENKEEL_ACTION attempt $EVENKEEL_ATTEMPT"
mark starts "$me"

# The broker is the one child of the warden. Where a run has a PID namespace of its own it is not
# to be seen, and nothing is killed.
find_broker() {
    read -r warden <"$DEMO/warden"
    brokers=
    for stat in /proc/[0-9]*/stat; do
        line=
        read -r line 2>/dev/null <"$stat" || continue
        # shellcheck disable=SC2086 # the words after the name: state, parent, …
        set -- ${line##*) }
        [ "${2-}" != "$warden" ] || brokers="$brokers ${line%% *}"
    done
}

# Somebody else may have killed it just now: the next one comes soon.
kill_broker() {
    tries=0
    find_broker
    while [ -z "$brokers" ]; do
        tries=$((tries + 1))
        [ "$tries" -le 100 ] || exit 1
        sleep 0.1
        find_broker
    done
    mark kills "$EVENKEEL_ATTEMPT$brokers"
    # Its own supervisor and itself too: nothing of this run is left to be asked.
    # shellcheck disable=SC2086 # a list of ids
    kill -s KILL $brokers "$PPID" "$$"
}

case $EVENKEEL_PLAN.$EVENKEEL_ACTION in
    crashes.provision) kill -s SEGV "$$" ;;
    kills-its-broker.provision) kill_broker ;;
esac

# Noclobber makes a file that exists an error: who finds one is not alone.
lock=$DEMO/locks/$EVENKEEL_INSTANCE_ID
if (set -C && : >"$lock") 2>/dev/null; then
    case $EVENKEEL_ACTION in
        provision | deprovision) sleep 0.8 ;;
        *) sleep 0.2 ;;
    esac
    rm "$lock"
else
    mark doubles "$me"
fi

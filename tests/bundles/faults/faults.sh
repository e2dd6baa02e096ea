# shellcheck shell=sh
# Sourced by action: the faults that are more than an exit code. What returns from here succeeds.
# Whatever could outlive a broken containment ends by itself after ten minutes.
# shellcheck disable=SC2154  # fault, marks, here: set by action

# only_in_own_namespace: every process that can be seen is pid 1 or carries the id of this very
# attempt. On a host, or beside anything that is not this run, that is not so. Where /proc is not
# that of the own namespace it shows others; where it is missing nothing carries the id.
only_in_own_namespace() {
    own=0
    for process in /proc/[0-9]*; do
        case ${process#/proc/} in 1) continue ;; esac
        # Gone meanwhile, or a zombie: neither can be hit.
        state=$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "$process/status" 2>/dev/null) || continue
        case $state in '' | Z | X) continue ;; esac
        if tr '\0' '\n' 2>/dev/null <"$process/environ" | grep -qx "EVENKEEL_ATTEMPT_ID=$EVENKEEL_ATTEMPT_ID"; then
            own=$((own + 1))
        elif [ -e "$process" ]; then
            fail "refused: process ${process#/proc/} is not of this run"
        fi
    done
    if [ "$own" = 0 ] || [ $$ = 1 ]; then fail 'refused: no /proc of an own PID namespace'; fi
}

# only_with_process_cap: a cgroup of this run bounds the number of processes.
only_with_process_cap() {
    for file in "/sys/fs/cgroup/pids$(sed -n 's/^[0-9]*:pids://p' /proc/self/cgroup)/pids.max" \
        "/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)/pids.max"; do
        [ -r "$file" ] || continue
        cap=$(cat "$file")
        case $cap in max | '') ;; *) [ "$cap" -gt 256 ] || return 0 ;; esac
    done
    fail 'refused: nothing caps the number of processes'
}

parent() { sed -n 's/^PPid:[[:space:]]*//p' "/proc/$$/status"; }
# hold_on: never comes back; to be ended from outside.
hold_on() { exec perl -e 'sleep 1 while $t++ < 600'; }

case $fault in
    abort) exec perl -MPOSIX -e 'POSIX::abort()' ;;
    segfault) exec perl -e 'my $s = unpack "p", pack "J", 8; print $s' ;;
    segv-signal) kill -s SEGV $$; hold_on ;;
    kill-self) kill -s KILL $$; hold_on ;;
    term-self) kill -s TERM $$; hold_on ;;
    kill-parent)
        before=$(parent)
        # 0: the parent is outside of the namespace, and kill 0 would mean our own group.
        if [ "$before" -gt 0 ]; then
            kill -s KILL "$before" 2>/dev/null || true
            # Still the same parent a second later: it is pid 1 of our namespace, which is immune.
            tries=0
            while [ "$(parent)" = "$before" ]; do
                tries=$((tries + 1))
                [ $tries -lt 50 ] || return 0
                sleep 0.02
            done
            mark parent-killed "$EVENKEEL_ATTEMPT"
            hold_on
        fi ;;
    kill-all)
        only_in_own_namespace
        sleep 600 &
        # Hits everything in the namespace but its pid 1 and whoever asks for it.
        kill -s KILL -- -1 || true ;;

    hang) hold_on ;;
    ignore-term)
        trap '' TERM HUP INT QUIT
        hold_on ;;
    stop-self) kill -s STOP $$; hold_on ;;
    spin) exec perl -e '1 while time - $^T < 600' ;;

    flood)
        head -c 268435456 /dev/zero | tr '\0' o &
        head -c 268435456 /dev/zero | tr '\0' e >&2
        wait ;;
    flood-progress) head -c 16777216 /dev/zero | tr '\0' p >>"$EVENKEEL_PROGRESS" ;;
    memory) exec perl -e 'push @a, "x" x 1048576 while @a < 4096; sleep 600' ;;
    memory-tree)
        # 8 × 64 MiB, each below what one process may have (a MiB at a time: a string of 64 MiB is
        # made twice on its way into a variable). A child that is killed ends the action as a
        # shell would: 128 + 9.
        exec perl -e '
            for (1 .. 8) { fork // exit 1 or do { push @a, "x" x 1048576 while @a < 64; sleep 600; exit } }
            wait;
            exit($? & 127 ? 128 + ($? & 127) : 1)' ;;
    fork-bomb)
        only_in_own_namespace
        only_with_process_cap
        exec perl -e 'while (time - $^T < 600) { fork // select undef, undef, undef, 0.1 }' ;;
    disk)
        # 256 MiB at most, then it holds on so that whoever measures has something to find.
        head -c 268435456 /dev/zero >"$TMPDIR/full" || true
        hold_on ;;
    disk-unlinked)
        exec perl -e '
            open my $f, "+>", "$ENV{TMPDIR}/gone" or exit 1;
            unlink "$ENV{TMPDIR}/gone";
            for (1 .. 256) { syswrite $f, "\0" x 1048576 or last }
            sleep 600' ;;

    leave-children)
        sleep 600 &
        setsid sleep 600 &
        (setsid sh -c 'sleep 600 & sleep 600' &)
        (trap '' TERM HUP; exec sleep 600) & ;;
    escape)
        # No variable to find it by, not in the action's session, nobody's child.
        (env -i setsid sleep 600 </dev/null >/dev/null 2>&1 &) ;;

    output-broken) printf '{"credentials": {"a": ' >"$EVENKEEL_OUTPUT"; exit 0 ;;
    output-array) echo '[]' >"$EVENKEEL_OUTPUT"; exit 0 ;;
    output-type) echo '{"credentials": "none"}' >"$EVENKEEL_OUTPUT"; exit 0 ;;
    output-deep) perl -e 'print "{\"credentials\": {\"a\": ", "[" x 10000, "]" x 10000, "}}"' >"$EVENKEEL_OUTPUT"; exit 0 ;;
    output-bytes) printf '{"credentials": {"a": "\377\376"}}' >"$EVENKEEL_OUTPUT"; exit 0 ;;
    output-huge) perl -e 'print "{\"credentials\": {\"a\": \"", "x" x (16 << 20), "\"}}"' >"$EVENKEEL_OUTPUT"; exit 0 ;;
    output-sparse) truncate -s 1T "$EVENKEEL_OUTPUT"; exit 0 ;;
    output-symlink)
        # A valid object, so that only the link itself is wrong.
        echo '{"credentials": {"stolen": true}}' >"$TMPDIR/elsewhere"
        rm -f "$EVENKEEL_OUTPUT"
        ln -s "$TMPDIR/elsewhere" "$EVENKEEL_OUTPUT"
        exit 0 ;;
    output-fifo) rm -f "$EVENKEEL_OUTPUT"; mkfifo "$EVENKEEL_OUTPUT"; exit 0 ;;
    output-folder) rm -f "$EVENKEEL_OUTPUT"; mkdir "$EVENKEEL_OUTPUT"; exit 0 ;;
    output-device) rm -f "$EVENKEEL_OUTPUT"; mknod "$EVENKEEL_OUTPUT" c 1 5; exit 0 ;;
    *) fail "unknown fault $fault" ;;
esac

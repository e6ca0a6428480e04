#!/bin/bash
# How a run may end other than by its guest's own power-off: what is said, the exit status, and what is left (nothing).
set -euo pipefail
. "$(dirname "$0")/lib.sh"

BOOT=(--set topology.switches=1)
nothing_left() {
    local left
    left=$(find "$XDG_RUNTIME_DIR" -mindepth 2 ! -name .lock ! -name kvm-probe.json)
    [ -z "$left" ] || fail "$1: left $left"
    if pgrep -f "$XDG_RUNTIME_DIR" >/dev/null; then fail "$1: a process is left"; fi
}
# end SIGNAL PID: ends it; its status is in STATUS.
end() {
    kill -"$1" "$2"
    STATUS=0
    wait "$2" || STATUS=$?
}

# A kernel that panics restarts the guest, which ends QEMU without an error; it is one for us.
: >"$WORK/empty"
boot "$WORK/panic.log" "${BOOT[@]}" --kernel 6.12-cloud --initrd "$WORK/empty"
[ "$STATUS" -eq 1 ] || fail "a panic: status $STATUS"
has "$WORK/panic.log" "guest0: the guest's kernel gave up" || fail "a panic isn't named"
nothing_left "a panic"
pass "a kernel's panic is an error"

# What would only make QEMU fail, or hang, is said before QEMU is started.
refused() {
    local pattern=$1
    shift
    boot "$WORK/refused.log" "${BOOT[@]}" "$@"
    [ "$STATUS" -eq 1 ] || fail "boot $*: status $STATUS"
    has "$WORK/refused.log" "$pattern" || fail "boot $*: not: $pattern"
}
printf 'x%.0s' {1..1000} >"$WORK/text"
refused 'kernel .*/empty is empty' --kernel "$WORK/empty" --initrd "$WORK/text"
refused 'kernel .*/text is neither a bzImage nor an ELF file' --kernel "$WORK/text" --initrd "$WORK/text"
refused 'initrd .*/text without a kernel' --initrd "$WORK/text" --disk "$WORK/text"
refused "guest kernel 'nix': no file" --kernel nix
pass "files that can't be booted"

# Powered off from outside, the second signal at once; a program that was to report a status hasn't.
start_boot "$WORK/off.log" "${BOOT[@]}" --append orrery.run=/bin/sleep --append '-- 1000'
until_true 60 "the kernel" has "$WORK/off.log" 'Linux version'
kill -TERM "$PID"
until_true 20 "the note" has "$WORK/off.log" 'powering off'
end TERM "$PID"
[ "$STATUS" -ne 0 ] || fail "a program without a status: status 0"
has "$WORK/off.log" 'before it reported' || fail "a missing status isn't named"
nothing_left "two SIGTERM"
pass "a run that is cut off doesn't count as a success"

# Signals while a run is being set up, and while it runs; a reader that goes.
for delay in 0 0.3 3; do
    for signal in INT TERM HUP; do
        "$ORRERY" demo "${BOOT[@]}" </dev/null >"$WORK/demo.log" 2>&1 &
        PID=$!
        STARTED+=("$PID")
        until_true 20 "the demonstration" test -s "$WORK/demo.log"
        sleep "$delay"
        end "$signal" "$PID"
        [ "$STATUS" -gt 128 ] || fail "SIG$signal after $delay s: status $STATUS"
        nothing_left "SIG$signal after $delay s"
    done
done
pass "signals at any time leave nothing behind"
"$ORRERY" boot "${BOOT[@]}" </dev/null 2>"$WORK/pipe.log" | head -n 1 >/dev/null || true
nothing_left "a reader that goes"
pass "a reader that goes leaves nothing behind"

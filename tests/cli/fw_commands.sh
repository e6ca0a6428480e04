#!/bin/bash
# fw_commands.sh: `orrery fw` and a server whose firmware is linked in: found, asked, disturbed, and gone.
set -euo pipefail

. "$(dirname "$0")/../guests/lib.sh"

# says STATUS PATTERN ARGUMENTS…
says() {
    local want=$1 pattern=$2 status=0
    shift 2
    "$ORRERY" fw "$@" >"$WORK/said.log" 2>&1 || status=$?
    [ "$status" = "$want" ] || fail "orrery fw $*: status $status"
    [ -z "$pattern" ] || grep -qE -- "$pattern" "$WORK/said.log" || fail "orrery fw $* doesn't say $pattern"
}
start() {
    "$ORRERY" fw run --target native --run "$1" --json >"$WORK/$1.log" 2>&1 &
    STARTED+=("$!")
    until_true 10 "server $1" test -s "$WORK/$1.log"
}

says 1 'no run with RNIC firmware' status
start one
says 0 'rnic0 +native +yes' status
says 0 '"target":"native"' status --json --rnic rnic2
says 1 'there is no RNIC .rnic9' status --rnic rnic9
says 1 'named so' status elsewhere
says 1 'linked into the server' gdb --rnic rnic0
says 1 'more than one RNIC' gdb
says 0 '' inject --opcode 0x400 --status 0xf
says 0 '' inject --read 0x90c --value 3 --count 1 --rnic rnic0
says 0 '' inject --dma 1
says 0 '' inject --clear
says 1 'multiple of 4' inject --read 3
says 1 'one fault at a time' inject --opcode 1 --dma 0
says 1 'channel is a number below 4' inject --dma 9
# Two at once: which one has to be said.
start two
says 1 'runs with RNIC firmware: (one, two|two, one)' status
says 0 'rnic0' status two
says 0 'rnic0' status "$XDG_RUNTIME_DIR"/orrery-*/one
kill "${STARTED[0]}"
wait "${STARTED[0]}" 2>/dev/null || true
says 0 'rnic0' status
[ -z "$(find "$XDG_RUNTIME_DIR" -name one)" ] || fail "the run's folder is left"
says 0 'Mlx5Command' test --target native --list
says 1 'needs a machine' test --target native --elf x.elf
says 1 'can.t be read' run --elf "$WORK/none.elf"
pass "found, asked, disturbed, and gone"

#!/bin/bash
# Two guests on one server process, 2 RNICs + 4 GPUs each; one is killed and boots again while the other works on.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

cat >"$WORK/two.toml" <<'TOML'
[[guest]]
name = "left"
devices = ["rnic0", "gpu0", "gpu1", "rnic1", "gpu2", "gpu3"]
memory_mib = 768
cpus = 2

[[guest]]
name = "right"
devices = ["rnic2", "gpu4", "gpu5", "rnic3", "gpu6", "gpu7"]
memory_mib = 768
cpus = 2
TOML
start_server "$WORK/s" "$WORK/server.log" --config "$WORK/two.toml"

start_boot "$WORK/right.log" --server "$WORK/s" --config "$WORK/two.toml" --guest right --run right --json
right=$PID
start_boot "$WORK/left.log" --server "$WORK/s" --config "$WORK/two.toml" --guest left --run left --json
left=$PID
until_true 30 "left's QEMU" has "$WORK/left.log" '"pid"'
until_true 180 "left" "$ORRERY" exec left -- true
until_true 180 "right" "$ORRERY" exec right -- true

demo=(/usr/bin/orrery-guest-demo --size 256K)
"$ORRERY" exec right -- "${demo[@]}" all >"$WORK/right-demo.log" 2>&1 &
right_demo=$!
"$ORRERY" exec left -- "${demo[@]}" topology copy >"$WORK/left-demo.log" 2>&1 || fail "left's demo"
has "$WORK/left-demo.log" '^topology .*: pass' 6 || fail "left doesn't see 6 functions"
# DMA is under way on all four GPUs when the guest dies.
("$ORRERY" exec left -- "${demo[@]}" --size 8M --timeout 300000 load >/dev/null 2>&1 || true) &
until_true 60 "left's load" "$ORRERY" exec left -- test -f /run/orrery-load
kill -KILL "$(qemu_pid "$WORK/left.log")"
until_true 30 "left's end" sh -c "! kill -0 $left"
wait "$right_demo" || fail "right was disturbed by left's death"
has "$WORK/right-demo.log" '^topology .*: pass' 6 || fail "right doesn't see 6 functions"
has "$WORK/right-demo.log" '^allreduce ring-f32: pass, 4 GPUs' || fail "right's AllReduce"

start_boot "$WORK/left2.log" --server "$WORK/s" --config "$WORK/two.toml" --guest left --run left2 --json
until_true 180 "left, again" "$ORRERY" exec left -- true
"$ORRERY" exec left -- "${demo[@]}" all >"$WORK/left2-demo.log" 2>&1 || fail "left's second life"
kill -0 "$SERVER" || fail "the server died"
kill -0 "$right" || fail "right died"
pass "two guests, one killed under DMA and booted again, the other undisturbed"

#!/bin/bash
# The demonstration, as the README calls it: every check of guest and host passes.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

status=0
"$ORRERY" demo --json --size 256K >"$WORK/demo.log" 2>&1 || status=$?
[ "$status" -eq 0 ] || fail "orrery demo: status $status"
has "$WORK/demo.log" '"passed": false' && fail "a check failed"
has "$WORK/demo.log" ' alone in its IOMMU group' 12 || fail "not all 12 endpoints found in groups of their own"
has "$WORK/demo.log" 'allreduce ring-f32: 8 GPUs, 262144 bytes each: sums verified' || fail "no AllReduce over 8 GPUs"
has "$WORK/demo.log" 'stays below the root complex with ACS off, crosses it with ACS 0x1d' 2 ||
    fail "direct and redirected copies don't differ"
has "$WORK/demo.log" 'unmap page-under-dma: the engine stopped' || fail "unmapping under a DMA was not tested"
has "$WORK/demo.log" 'RNICs have an active port' 2 || fail "not both guests' RNICs are up"
for program in ibv_rc_pingpong ib_write_bw ib_read_lat; do
    has "$WORK/demo.log" "$program: .* (from|to) the other guest|$program: .*compared" || fail "$program didn't run"
done
has "$WORK/demo.log" 'rping: .* compared' || fail "rping didn't run"
has "$WORK/demo.log" 'GPUDirect: [1-9][0-9]* TLPs with AT = 10b from RNICs, 0 of them on a link' || fail "no GPUDirect"
# Seven steps that make up the time from doorbell to CQE.
has "$WORK/demo.log" '"step": "' 7 || fail "a READ's latency isn't broken down"
has "$WORK/demo.log" 'interrupt gpu7: 32 interrupts' || fail "no interrupts of gpu7"
pass "$(grep -ac '"passed": true' "$WORK/demo.log") checks"

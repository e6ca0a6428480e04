#!/bin/bash
# With BAR mapping off every access of the guest is a TLP: GPU memory through BAR2 still works.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

boot "$WORK/boot.log" --set gpu.map_bars=false --set time.mode=timed --set "trace.file=$WORK/run.trace" \
    --append "quiet orrery.run=/usr/bin/orrery-guest-demo -- --bar-bytes 4K memory"
[ "$STATUS" -eq 0 ] || fail "status $STATUS"
has "$WORK/boot.log" '^memory gpu[0-7]: pass' 8 || fail "not 8 GPU memories"
"$ORRERY" trace show "$WORK/run.trace" >"$WORK/trace.txt" || fail "trace show"
# At least the 4 KiB that the CPU wrote to each GPU, in accesses of 8 bytes.
[ "$(grep -c 'MWr' "$WORK/trace.txt")" -ge $((8 * 512)) ] || fail "the guest's writes are not in the trace"
pass "every access to GPU memory is a TLP"

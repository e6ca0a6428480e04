#!/bin/bash
# A live run, recorded, replays to its trace hash without the guest; a changed recording doesn't.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

boot "$WORK/boot.log" --set time.mode=timed --set "record.file=$WORK/run.rec" --set "trace.file=$WORK/live.trace" \
    --append "quiet orrery.run=/usr/bin/orrery-guest-demo -- --size 64K topology memory interrupt"
[ "$STATUS" -eq 0 ] || fail "the recorded run: status $STATUS"
hash=$(sed -n 's/.*trace hash \([0-9a-f]*\).*/\1/p' "$WORK/boot.log")
[ -n "$hash" ] || fail "no trace hash"
"$ORRERY" replay "$WORK/run.rec" --trace "$WORK/replay.trace" >"$WORK/replay.log" 2>&1 || fail "the replay"
has "$WORK/replay.log" "trace hash $hash" || fail "another hash than $hash"
"$ORRERY" replay "$WORK/run.rec" >"$WORK/replay2.log" 2>&1 || fail "the second replay"
has "$WORK/replay2.log" "trace hash $hash" || fail "another hash the second time"
live=$("$ORRERY" trace summary --json "$WORK/live.trace" | tr -d ' ')
again=$("$ORRERY" trace summary --json "$WORK/replay.trace" | tr -d ' ')
[ "$live" = "$again" ] || fail "the traces' summaries differ"
# Half a recording has no result to end in.
head -c $(($(stat -c %s "$WORK/run.rec") / 2)) "$WORK/run.rec" >"$WORK/half.rec"
"$ORRERY" replay "$WORK/half.rec" >"$WORK/half.log" 2>&1 && fail "half a recording passed"
pass "replayed twice to $hash"

#!/bin/bash
# orrery repro: a figure within its tolerance, twice the same; another server gives another figure, and status 1; what
# can't be done is said.
set -euo pipefail
. "$(dirname "$0")/../guests/lib.sh"

"$ORRERY" repro fig13 --json >"$WORK/first.json" 2>"$WORK/first.log" || fail "status $?"
"$ORRERY" repro fig13 --json >"$WORK/second.json" 2>"$WORK/second.log" || fail "status $? the second time"
cmp "$WORK/first.json" "$WORK/second.json" || fail "two runs differ"
# value BYTES KEY FILE: ours, of the point whose size that is in the list of that name.
value() { sed -n "/\"$2\"/,/]/p" "$3" | awk -v b="\"bytes\": $1," '$0 ~ b {f = 1} f && /"ours"/ {print $2 + 0; exit}'; }
# One port of 200 Gb/s. A full packet is 4096 bytes of 4202 on the wire: Ethernet with preamble, FCS and gap 38, IPv4 20, UDP 8,
# BTH 12, placement header with address 24 (docs/fabric.md), ICRC 4. That is 194.95 Gb/s at most; the message rate allows more.
status=0
"$ORRERY" repro fig13 --json --set network.ports=1 >"$WORK/one.json" 2>"$WORK/one.log" || status=$?
[ "$status" -eq 1 ] || fail "one port: status $status instead of 1"
one=$(value 65536 throughput_gbps "$WORK/one.json")
awk -v v="$one" 'BEGIN {m = 200 * 4096 / 4202; exit !(v > 0.98 * m && v <= m)}' || fail "one port of 200 Gb/s: $one Gb/s"
# Half the message rate is half the throughput of small messages: 4096 bytes each 428 ns.
"$ORRERY" repro fig13 --json --set rnic.message_ns=428 >"$WORK/slow.json" 2>"$WORK/slow.log" && fail "half the rate: status 0"
slow=$(value 4096 throughput_gbps "$WORK/slow.json")
awk -v v="$slow" 'BEGIN {w = 4096 * 8 / 428; exit !(v > 0.99 * w && v < 1.001 * w)}' || fail "428 ns a message: $slow Gb/s"

refused() {
    local words=$1 status=0
    shift
    "$ORRERY" repro "$@" >"$WORK/refused.out" 2>"$WORK/refused.log" || status=$?
    [ "$status" -ne 0 ] || fail "repro $*: status 0"
    has "$WORK/refused.log" "$words" || fail "repro $*: it doesn't say $words"
}
refused 'fig13' fig99
refused 'two RNICs' fig13 --set topology.switches=1
refused 'two RNICs' fig13 --set rnic.personality=self-test
pass "figure 13 within its tolerance, deterministic; one port, half the message rate, and what can't be done"

#!/bin/bash
# Other servers by configuration alone: 1 switch, 8 switches, 2 RNICs a switch, root ports only.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# shape NAME ENDPOINTS SETTING…
shape() {
    local name=$1 endpoints=$2
    shift 2
    local sets=() setting
    for setting in "$@"; do sets+=(--set "$setting"); done
    boot "$WORK/$name.log" "${sets[@]}" --append "quiet orrery.run=/usr/bin/orrery-guest-demo -- --size 64K topology copy"
    [ "$STATUS" -eq 0 ] || fail "$name: status $STATUS"
    has "$WORK/$name.log" '^topology .*: pass' "$endpoints" || fail "$name: not $endpoints endpoints"
    pass "$name: $endpoints endpoints"
}
shape one-switch 3 topology.switches=1 topology.sockets=1
shape eight-switches 24 topology.switches=8
shape two-rnics 16 topology.rnics_per_switch=2
shape root-ports 12 topology.switches=0

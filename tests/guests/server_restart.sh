#!/bin/bash
# A server that is killed and started again: the launcher plugs its devices in again, and they work.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

start_server "$WORK/s" "$WORK/server.log"
start_boot "$WORK/boot.log" --server "$WORK/s" --json
until_true 180 "the guest" "$ORRERY" exec guest0 -- true
count() { "$ORRERY" exec guest0 -- sh -c 'grep -l 0x1234 /sys/bus/pci/devices/*/vendor | wc -l'; }
[ "$(count)" -eq 12 ] || fail "not 12 endpoints at first"
kill -KILL "$SERVER"
until_true 20 "the loss to be noticed" has "$WORK/boot.log" 'has gone'
start_server "$WORK/s" "$WORK/server2.log"
until_true 120 "12 devices back" has "$WORK/boot.log" 'is back' 12
until_true 30 "12 endpoints again" sh -c "[ \"\$('$ORRERY' exec guest0 -- sh -c 'grep -l 0x1234 /sys/bus/pci/devices/*/vendor | wc -l')\" -eq 12 ]"
"$ORRERY" exec guest0 -- /usr/bin/orrery-guest-demo --size 64K topology memory copy >"$WORK/demo.log" 2>&1 ||
    fail "the devices don't work after the re-plug"
pass "12 devices back after the server was killed"

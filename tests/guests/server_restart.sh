#!/bin/bash
# A server that is killed and started again: the launcher starts its guests anew, and the devices work.
# (QEMU up to 11.1 can't lose a vfio-user function with MSI-X: see docs/getting-started.md.)
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
until_true 20 "the guest's new start" has "$WORK/boot.log" 'guest0: started anew'
until_true 180 "the guest, again" "$ORRERY" exec guest0 -- true
[ "$(count)" -eq 12 ] || fail "not 12 endpoints again"
"$ORRERY" exec guest0 -- /usr/bin/orrery-guest-demo --size 64K topology memory copy >"$WORK/demo.log" 2>&1 ||
    fail "the devices don't work on the new server"
kill -0 "$PID" || fail "the launcher ended"
pass "12 devices back after the server was killed"

#!/bin/bash
# A server that is killed and started again: the launcher starts its guests anew, and the devices work.
# (QEMU up to 11.1 can't lose a vfio-user function with MSI-X: see docs/getting-started.md.)
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# RNICs that no driver in the guest is bound to.
server=(--set rnic.personality=self-test)

start_server "$WORK/s" "$WORK/server.log" "${server[@]}"
start_boot "$WORK/boot.log" --server "$WORK/s" "${server[@]}" --json
until_true 180 "the guest" "$ORRERY" exec guest0 -- true
count() { "$ORRERY" exec guest0 -- sh -c 'grep -l 0x1234 /sys/bus/pci/devices/*/vendor | wc -l'; }
[ "$(count)" -eq 12 ] || fail "not 12 endpoints at first"
# Neither a second launcher of the same guest nor one with another configuration gets to wait for a socket in vain.
boot "$WORK/second.log" --server "$WORK/s" "${server[@]}"
[ "$STATUS" -eq 1 ] || fail "a second launcher: status $STATUS"
has "$WORK/second.log" "guest0 of the server in .* is run by another" || fail "a second launcher"
boot "$WORK/other.log" --server "$WORK/s" "${server[@]}" --set guest.0.name=other
[ "$STATUS" -eq 1 ] || fail "another configuration: status $STATUS"
has "$WORK/other.log" "the server in .* has no rnic0 for other" || fail "another configuration"
kill -KILL "$SERVER"
until_true 20 "the loss to be noticed" has "$WORK/boot.log" 'has gone'
start_server "$WORK/s" "$WORK/server2.log" "${server[@]}"
until_true 20 "the guest's new start" has "$WORK/boot.log" 'guest0: started anew'
until_true 180 "the guest, again" "$ORRERY" exec guest0 -- true
[ "$(count)" -eq 12 ] || fail "not 12 endpoints again"
"$ORRERY" exec guest0 -- /usr/bin/orrery-guest-demo --size 64K topology memory copy >"$WORK/demo.log" 2>&1 ||
    fail "the devices don't work on the new server"
kill -0 "$PID" || fail "the launcher ended"
pass "12 devices back after the server was killed"

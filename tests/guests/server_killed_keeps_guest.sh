#!/bin/bash
# A server that is killed and started again under a guest that goes on: `orrery boot --server DIR --keep-guest`. A
# program in the guest holds the devices open over the outage, and uses DMA and interrupts afterwards.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# RNICs that no driver in the guest is bound to.
server=(--set rnic.personality=self-test)

in_guest() { "$ORRERY" exec guest0 -- "$@"; }
# Address, vendor and device ID, and the base address registers of each endpoint, from configuration space.
# shellcheck disable=SC2016  # expanded in the guest
endpoints() {
    in_guest sh -c 'for d in $(grep -l 0x1234 /sys/bus/pci/devices/*/vendor); do
        c=${d%/vendor}/config
        echo "${d%/vendor}" $(od -An -tx4 -N4 "$c") $(od -An -tx4 -j16 -N24 "$c")
    done'
}
boot_id() { in_guest cat /proc/sys/kernel/random/boot_id; }
guest_log_has() { in_guest grep -q "$1" /tmp/outage.log; }

start_server "$WORK/s" "$WORK/server.log" "${server[@]}"
start_boot "$WORK/boot.log" --server "$WORK/s" "${server[@]}" --keep-guest --json
until_true 180 "the guest" in_guest true
endpoints >"$WORK/before.txt"
[ "$(grep -cE ' 0e[12]01234 ' "$WORK/before.txt")" -eq 12 ] || fail "not 12 endpoints at first"
boot_id >"$WORK/boot_id.txt"
in_guest sh -c '/usr/bin/orrery-guest-demo --timeout 200000 --size 64K outage copy interrupt >/tmp/outage.log 2>&1 &'
until_true 60 "the devices' use" guest_log_has '^outage before: pass, 12 devices'

kill -KILL "$SERVER"
until_true 20 "the loss to be noticed" has "$WORK/boot.log" 'has gone'
until_true 60 "all ones" guest_log_has '^outage during: pass, 12 devices'
endpoints >"$WORK/during.txt"
[ "$(grep -c ' ffffffff ' "$WORK/during.txt")" -eq 12 ] || fail "configuration space is not all ones"

start_server "$WORK/s" "$WORK/server2.log" "${server[@]}"
until_true 20 "the server's return" has "$WORK/boot.log" 'is back; 12 devices'
until_true 120 "the devices' return" guest_log_has '^summary'
in_guest cat /tmp/outage.log >"$WORK/outage.log"
has "$WORK/outage.log" '^outage after: pass, 12 devices' || fail "the devices didn't come back"
# Copies to and from host memory; peers can't reach each other's BARs in this mode.
has "$WORK/outage.log" '^copy (host-gpu[0-7]|gpu[0-7]-host): pass' 16 || fail "copies through mappings made before"
has "$WORK/outage.log" '^interrupt gpu[0-7]: pass' 8 || fail "interrupts set up before"
endpoints >"$WORK/after.txt"
cmp "$WORK/before.txt" "$WORK/after.txt" || fail "IDs or base addresses changed"

# Once more, without anybody at the devices; then a driver sets them up from scratch.
kill -KILL "$SERVER"
until_true 20 "the second loss to be noticed" has "$WORK/boot.log" 'has gone' 2
start_server "$WORK/s" "$WORK/server3.log" "${server[@]}"
until_true 20 "the server's second return" has "$WORK/boot.log" 'is back; 12 devices' 2
in_guest /usr/bin/orrery-guest-demo --size 64K topology interrupt >"$WORK/demo.log" 2>&1 ||
    fail "the devices don't work on the third server"
[ "$(boot_id)" = "$(cat "$WORK/boot_id.txt")" ] || fail "the guest was restarted"
kill -0 "$PID" || fail "the launcher ended"
pass "12 devices back twice in a guest that went on"

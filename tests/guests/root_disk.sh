#!/bin/bash
# The whole Debian with systemd: login prompt, ssh, and all 12 endpoints in it.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

ssh-keygen -q -t ed25519 -N '' -f "$WORK/key"
start_boot "$WORK/boot.log" --json --disk root --ssh-key "$WORK/key.pub" --memory 1536
until_true 30 "QEMU's start" has "$WORK/boot.log" '"console_log"'
console=$(sed -n 's/.*"console_log":"\([^"]*\)".*/\1/p' "$WORK/boot.log")
port=$(sed -n 's/.*"ssh_port":\([0-9]*\).*/\1/p' "$WORK/boot.log")
until_true 240 "login:" has "$console" 'login:'
in_guest() {
    ssh -i "$WORK/key" -p "$port" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR \
        -o ConnectTimeout=20 root@127.0.0.1 "$@"
}
until_true 60 "ssh" in_guest true
in_guest 'cat /sys/bus/pci/devices/*/vendor' >"$WORK/vendors.log"
[ "$(grep -cE "0x(1234|15b3)" "$WORK/vendors.log")" -eq 12 ] || fail "not 12 endpoints over ssh"
[ "$("$ORRERY" exec guest0 -- cat /proc/1/comm)" = systemd ] || fail "init is not systemd"
kill "$PID"
until_true 60 "the guest's end" sh -c "! kill -0 $PID"
pass "login:, ssh and exec on a whole Debian with 12 endpoints"

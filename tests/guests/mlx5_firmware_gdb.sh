#!/bin/bash
# mlx5_firmware_gdb.sh KERNEL: gdb breaks in a command's handler while a stock guest waits for that command. The firmware
# stands still for 35 s; the guest's device answers all the while, nothing is taken for dead, and the command goes on.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

kernel=$1
pause=35
mkdir "$WORK/share"
# shellcheck disable=SC2016  # for the guest's shell
script='
    mount -t virtiofs orrery /mnt/share || exit 1;
    modprobe mlx5_ib; modprobe -r mlx5_ib || exit 1;
    touch /mnt/share/up;
    while [ ! -e /mnt/share/go ]; do sleep 0.2; done;
    while :; do lspci -d 15b3: -xxx | sed -n 2p >>/mnt/share/beats; sleep 1; done &
    modprobe mlx5_ib || exit 1;
    for i in $(seq 60); do ibv_devinfo -d mlx5_0 | grep -q PORT_ACTIVE && touch /mnt/share/active && break; sleep 1; done;
    dmesg | grep mlx5'
start_boot "$WORK/gdb_guest.log" --run gdb --set rnic.personality=mlx5 --set rnic.port_type=infiniband --set rnic.firmware=riscv64 --set topology.switches=0 \
    --set topology.rnics=1 --set topology.gpus=0 --kernel "$kernel" --share "$WORK/share" \
    --append "loglevel=5 orrery.run=/bin/sh -- -c \"${script//$'\n'/ }\""
boot=$PID
until_true 120 "a guest" test -e "$WORK/share/up"
timeout 200 "$ORRERY" fw gdb gdb -- -batch -ex 'break orrery::firmware::create_cq' -ex "shell touch $WORK/share/go" -ex continue \
    -ex 'backtrace 4' -ex "shell date +%s >$WORK/share/stopped; sleep $pause; wc -l <$WORK/share/beats >$WORK/beats" \
    -ex 'delete' -ex detach </dev/null >"$WORK/gdb.log" 2>&1 || fail "gdb: status $?"
has "$WORK/gdb.log" '^Breakpoint 1, .*create_cq' || fail "no stop in the handler"
has "$WORK/gdb.log" '^#1 .*Firmware::execute' || fail "no backtrace"
# The guest read the device's configuration space once a second throughout, and never all ones.
[ "$(cat "$WORK/beats")" -ge $((pause / 2)) ] || fail "the guest stood still: $(cat "$WORK/beats") reads in $pause s"
has "$WORK/share/beats" 'ff ff ff ff' && fail "the device was gone"
STATUS=0
wait "$boot" || STATUS=$?
[ "$STATUS" -eq 0 ] || fail "status $STATUS"
[ -e "$WORK/share/active" ] || fail "the device didn't come up afterwards"
has "$WORK/gdb_guest.log" 'RNIC 0: firmware' && fail "the watchdog took a stopped firmware for a dead one"
has "$WORK/gdb_guest.log" 'mlx5_core.*(timeout|health compromised|failed)' && fail "the driver gave up"
pass "$kernel: stopped in create_cq for $pause s; the guest went on with $(cat "$WORK/beats") reads of its device, then with its command"

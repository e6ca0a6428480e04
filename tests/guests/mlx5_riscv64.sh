#!/bin/bash
# mlx5_riscv64.sh KERNEL: the firmware on a processor of its own. A stock guest comes up on it and moves data; when the
# firmware's machine is killed, the guest's driver sees a fatal error, the machine is started anew and serves again.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

kernel=$1
settings=(--set rnic.personality=mlx5 --set rnic.port_type=infiniband --set rnic.firmware=riscv64 --set topology.switches=0 --set topology.rnics=2
    --set topology.gpus=0)

# Without the program: what is missing and how to mend it.
if ORRERY_QEMU_RISCV=$WORK/none "$ORRERY" boot "${settings[@]}" --kernel "$kernel" </dev/null >"$WORK/none.log" 2>&1; then
    fail "a server started without its firmware's machine"
fi
has "$WORK/none.log" 'ORRERY_QEMU_RISCV names .*/none, which is not a program' || fail "the message about a missing QEMU"
echo text >"$WORK/text"
if "$ORRERY" boot "${settings[@]}" --set "rnic.firmware_elf=$WORK/text" --kernel "$kernel" </dev/null >"$WORK/elf.log" 2>&1; then
    fail "a server started with a firmware that is no ELF file"
fi
has "$WORK/elf.log" 'text is no ELF file' || fail "the message about a firmware that is no ELF file"

# The guest waits for both devices, moves data, and does so again after it was told to (a file of the shared folder).
mkdir "$WORK/share"
# shellcheck disable=SC2016  # for the guest's shell
script='
    modprobe mlx5_ib && modprobe ib_uverbs || exit 1;
    mount -t virtiofs orrery /mnt/share || exit 1;
    both() { for i in $(seq 90); do
        ibv_devinfo -d mlx5_0 | grep -q PORT_ACTIVE && ibv_devinfo -d mlx5_1 | grep -q PORT_ACTIVE && return 0; sleep 1; done; return 1; };
    pair() { ibv_rc_pingpong -n 100 -d mlx5_0 & server=$!; sleep 2;
        ibv_rc_pingpong -n 100 -d mlx5_1 127.0.0.1 && wait $server && echo done:$1; };
    both || exit 1; pair first; touch /mnt/share/first;
    while [ ! -e /mnt/share/killed ]; do sleep 1; done;
    for i in $(seq 60); do dmesg | grep -q "mlx5_core.*[Hh]ealth" && break; sleep 1; done;
    sleep 5; both || exit 1; pair second; touch /mnt/share/second;
    while [ ! -e /mnt/share/injected ]; do sleep 1; done;
    modprobe -r mlx5_ib; modprobe mlx5_ib; sleep 3; touch /mnt/share/reported; dmesg | grep mlx5_core'
start_boot "$WORK/riscv64.log" --run riscv64 "${settings[@]}" --kernel "$kernel" --share "$WORK/share" \
    --append "loglevel=5 orrery.run=/bin/sh -- -c \"${script//$'\n'/ }\""
boot=$PID
until_true 120 "data over the first firmware" test -e "$WORK/share/first"
folder=$(echo "$XDG_RUNTIME_DIR"/orrery-*/riscv64/.firmware)
has "$folder/rnic0.log" '^ready' || fail "the firmware's console"
[ "$(stat -c %a "$folder")" = 700 ] || fail "others can enter $folder"
machine=$(pgrep -f "$folder/rnic0.registers") || fail "no machine of rnic0's firmware"
kill -KILL "$machine"
until_true 20 "a new machine" has "$folder/rnic0.log" '^ready'
touch "$WORK/share/killed"

# A command that the firmware is made to fail: the driver reports exactly that, and so does the trace.
until_true 200 "data over the second firmware" test -e "$WORK/share/second"
"$ORRERY" fw inject riscv64 --rnic rnic0 --opcode 0x400 --status 0xf --syndrome 0x123 --count 1 || fail "orrery fw inject"
"$ORRERY" fw trace riscv64 --rnic rnic0 >"$WORK/trace.log" 2>&1 &
STARTED+=("$!")
until_true 20 "the trace's heading" has "$WORK/trace.log" 'handled us'
touch "$WORK/share/injected"
until_true 60 "the driver's report" test -e "$WORK/share/reported"
"$ORRERY" fw status riscv64 >"$WORK/status.log" || fail "orrery fw status"
STATUS=0
wait "$boot" || STATUS=$?
[ "$STATUS" -eq 0 ] || fail "status $STATUS"
has "$WORK/riscv64.log" 'rnic0: the machine of its firmware was killed by signal 9' || fail "no word of the killed machine"
has "$WORK/riscv64.log" 'RNIC 0: firmware has lost its processor' || fail "no word of the lost processor"
has "$WORK/riscv64.log" 'done:first' || fail "the first transfer"
has "$WORK/riscv64.log" 'done:second' || fail "the transfer after the restart"
has "$WORK/riscv64.log" 'CREATE_CQ\(0x400\).*failed, status no resources\(0xf\), syndrome \(0x123\)' ||
    fail "the driver doesn't report the status that was injected"
has "$WORK/trace.log" ' CREATE_CQ +0x400 +0x0 +0xf +0x123 ' || fail "the trace lacks the command that failed"
has "$WORK/trace.log" ' DEALLOC_PD +0x801 +0x0 +0x0 ' || fail "the trace lacks the commands after it"
has "$WORK/status.log" '^rnic0 +riscv64 +yes .* 1 +processor lost, syndrome 0x7' || fail "the crash that the status shows"
[ ! -e "$folder" ] || fail "$folder is left"
pass "$kernel: RC ping-pong on the riscv64 firmware, again after its machine was killed, and with a command that fails"

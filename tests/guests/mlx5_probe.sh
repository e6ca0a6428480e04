#!/bin/bash
# mlx5_probe.sh KERNEL [full]: the stock mlx5 drivers of a Debian kernel bring an RNIC up without a complaint, show its
# port active, survive removal and a function-level reset, and report a command that the firmware fails. full: the
# Ethernet port type too, and the two minutes that the driver waits for firmware before it gives up.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

kernel=$1
full=${2:-}
server=(--set rnic.personality=mlx5 --set rnic.port_type=infiniband --set topology.switches=0 --set topology.rnics=1 --set topology.gpus=0)
# in_guest LOG SCRIPT ARGUMENTS…: a shell script in a guest of its own, without double quotes in it. The console is
# given time to print what the script wrote last.
in_guest() {
    local log=$1 script=${2//$'\n'/ }
    shift 2
    boot "$log" "${server[@]}" "$@" --kernel "$kernel" --append "loglevel=5 orrery.run=/bin/sh -- -c \"$script; status=\$?; sleep 1; exit \$status\""
}
complaints='mlx5.*(fail|error|warn|timeout|status|unable|can.t)|cut here|Call Trace'

# Registered, active; again after the modules were removed, and after an FLR from which the driver recovers by itself.
in_guest "$WORK/probe.log" '
    modprobe mlx5_ib && modprobe ib_uverbs || exit 1;
    ibv_devinfo -v;
    rmmod mlx5_ib && rmmod mlx5_core && modprobe mlx5_ib || exit 2;
    sleep 1; ibv_devinfo | sed s/^/again:/;
    dmesg > /tmp/before;
    echo 1 > /sys/class/infiniband/mlx5_0/device/reset;
    for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        sleep 1; ibv_devinfo 2>/dev/null | grep -q PORT_ACTIVE && dmesg | grep -q recovery.succeeded && break;
    done;
    ibv_devinfo | sed s/^/reset:/'
[ "$STATUS" -eq 0 ] || fail "status $STATUS"
has "$WORK/probe.log" '^[[:space:]]*state:[[:space:]]*PORT_ACTIVE' || fail "the port isn't active"
has "$WORK/probe.log" '^[[:space:]]*board_id:[[:space:]]*ORRERY' || fail "no board id"
has "$WORK/probe.log" '^again:[[:space:]]*state:[[:space:]]*PORT_ACTIVE' || fail "not active after rmmod and modprobe"
has "$WORK/probe.log" '^reset:[[:space:]]*state:[[:space:]]*PORT_ACTIVE' || fail "not active after a reset"
# A reset is a fatal error that the driver notices; until then nothing may have gone wrong.
sed '/^again:/,$d' "$WORK/probe.log" >"$WORK/quiet.log"
has "$WORK/quiet.log" "$complaints" && fail "the driver complained"

if [ -n "$full" ]; then
    # The Ethernet port type: the netdev is there, the RDMA device over it too.
    in_guest "$WORK/ethernet.log" '
        sleep 1; modprobe mlx5_ib; modprobe ib_uverbs; sleep 1;
        ibv_devinfo; ip -o link show | grep 02:4f:52 && echo netdev:there;
        rmmod mlx5_ib && rmmod mlx5_core && echo removed:yes' --set rnic.port_type=ethernet
    has "$WORK/ethernet.log" 'link_layer:[[:space:]]*Ethernet' || fail "no RDMA device with an Ethernet port"
    has "$WORK/ethernet.log" 'netdev:there' || fail "no network device"
    has "$WORK/ethernet.log" 'removed:yes' || fail "the Ethernet port can't be removed"
    has "$WORK/ethernet.log" "$complaints" && fail "the driver complained about the Ethernet port"
fi

# What the firmware fails, the driver reports.
in_guest "$WORK/fault.log" 'modprobe mlx5_ib; modprobe ib_uverbs; sleep 1; ibv_devinfo; true' \
    --set rnic.fault_opcode=0x203 --set rnic.fault_status=0xf
has "$WORK/fault.log" 'QUERY_SPECIAL_CONTEXTS\(0x203\).*no resources\(0xf\)|0x203' ||
    fail "the failed command is not reported"

# Without firmware there is no device: the driver waits, and after two minutes it says so.
if [ -n "$full" ]; then
    in_guest "$WORK/none.log" 'sleep 1; ls /sys/class/infiniband 2>/dev/null; lspci -n | grep 15b3; true' \
        --set rnic.firmware=none
    has "$WORK/none.log" 'Firmware over [0-9]* MS in (pre-)?initializing state' || fail "the driver didn't give up"
else
    # Not powered off: the kernel would first wait for the driver.
    start_boot "$WORK/boot.log" "${server[@]}" --set rnic.firmware=none --kernel "$kernel" --run none --no-console \
        --append "loglevel=5 modprobe.blacklist=mlx5_core"
    until_true 120 "the guest without firmware" "$ORRERY" exec none/guest0 -- true
    "$ORRERY" exec none/guest0 -- sh -c '(modprobe mlx5_core; touch /tmp/ended) >/dev/null 2>&1 & sleep 3
        ls /sys/class/infiniband /tmp/ended; lspci -n | grep 15b3' >"$WORK/none.log" 2>/dev/null || true
    has "$WORK/none.log" '^/tmp/ended' && fail "the driver doesn't wait for firmware"
    kill -KILL "$(pgrep -P "$PID" | head -n 1)" 2>/dev/null || true
    kill "$PID" 2>/dev/null || true
fi
has "$WORK/none.log" '15b3:101e' || fail "the function isn't there"
has "$WORK/none.log" 'mlx5_0' && fail "a device without firmware came up"
pass "$kernel: registered, active, removed, reset, a failed command reported, none without firmware"

#!/bin/bash
# mlx5_storage.sh KERNEL: NVMe over Fabrics between two stock guests: Debian's nvmet-rdma exports a file of the left guest,
# nvme-rdma of the right one makes a disk of it. What the right guest writes is what the left guest's file holds, and
# what it reads back after its caches are dropped; again after the connection is lost and made anew.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/pair.sh"

kernel=$1
start_pair storage --kernel "$kernel" --memory 768
# shellcheck disable=SC2016  # the guest's shell expands it
left sh -c '
    modprobe nvmet-rdma || exit 1
    mount -t configfs configfs /sys/kernel/config 2>/dev/null
    truncate -s 32M /tmp/disk
    cd /sys/kernel/config/nvmet || exit 1
    mkdir subsystems/nqn.2026-01.org.orrery:disk && cd subsystems/nqn.2026-01.org.orrery:disk || exit 1
    echo 1 >attr_allow_any_host
    mkdir namespaces/1 && cd namespaces/1 && echo /tmp/disk >device_path && echo 1 >buffered_io && echo 1 >enable || exit 1
    mkdir /sys/kernel/config/nvmet/ports/1 && cd /sys/kernel/config/nvmet/ports/1 || exit 1
    echo rdma >addr_trtype; echo ipv4 >addr_adrfam; echo 10.7.0.1 >addr_traddr; echo 4420 >addr_trsvcid
    ln -s /sys/kernel/config/nvmet/subsystems/nqn.2026-01.org.orrery:disk subsystems/' >"$WORK/target.log" 2>&1 ||
    fail "the target"
# shellcheck disable=SC2016  # the guest's shell expands it
connect='
    modprobe nvme-rdma || exit 1
    echo "transport=rdma,traddr=10.7.0.1,trsvcid=4420,nqn=nqn.2026-01.org.orrery:disk,nr_io_queues=2" >/dev/nvme-fabrics || exit 1
    for try in $(seq 40); do [ -b /dev/nvme0n1 ] && exit; sleep 0.25; done
    exit 1'
right sh -c "$connect" >"$WORK/connect.log" 2>&1 || fail "the connection"
# write_and_compare NAME: 24 MiB in pieces of several sizes, and a few sectors at odd places.
write_and_compare() {
    # shellcheck disable=SC2016  # the guest's shell expands it
    right sh -c '
        head -c 25165824 /dev/urandom >/tmp/data || exit 1
        dd if=/tmp/data of=/dev/nvme0n1 bs=1M count=16 oflag=direct 2>/dev/null || exit 1
        dd if=/tmp/data of=/dev/nvme0n1 bs=4k skip=4096 seek=4096 count=2048 oflag=direct 2>/dev/null || exit 1
        for at in 1 511 2047 6000; do
            dd if=/tmp/data of=/dev/nvme0n1 bs=4096 skip=$at seek=$((at + 3)) count=5 oflag=direct conv=notrunc 2>/dev/null || exit 1
        done
        sync; echo 3 >/proc/sys/vm/drop_caches
        dd if=/dev/nvme0n1 bs=1M count=24 iflag=direct 2>/dev/null | sha256sum' >"$WORK/read-$1.log" 2>&1 ||
        fail "writing and reading"
    left sh -c 'head -c 25165824 /tmp/disk | sha256sum' >"$WORK/file-$1.log" 2>&1 || fail "the file"
    # What the writes make of the data, in plain files.
    # shellcheck disable=SC2016  # the guest's shell expands it
    right sh -c '
        cp /tmp/data /tmp/expected
        for at in 1 511 2047 6000; do
            dd if=/tmp/data of=/tmp/expected bs=4096 skip=$at seek=$((at + 3)) count=5 conv=notrunc 2>/dev/null
        done
        sha256sum </tmp/expected' >"$WORK/expected-$1.log" 2>&1
    cmp -s "$WORK/expected-$1.log" "$WORK/file-$1.log" || fail "the left guest's file is not what was written"
    cmp -s "$WORK/expected-$1.log" "$WORK/read-$1.log" || fail "what is read is not what was written"
}
write_and_compare 1
# The port goes down under the connection and comes back: nvme-rdma connects anew.
# shellcheck disable=SC2016  # the guest's shell expands it
right sh -c '
    net=$(ls /sys/class/infiniband/mlx5_0/device/net)
    ip link set $net down; sleep 1; ip link set $net up
    for try in $(seq 120); do
        [ "$(cat /sys/class/nvme/nvme0/state)" = live ] && dd if=/dev/nvme0n1 of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null && exit
        sleep 0.5
    done
    cat /sys/class/nvme/nvme0/state; exit 1' >"$WORK/again.log" 2>&1 || fail "no connection after the link was down"
write_and_compare 2
right sh -c 'echo 1 >/sys/class/nvme/nvme0/delete_controller' || fail "disconnecting"
kill "$PID"
wait "$PID" || true
pass "$kernel: NVMe over RDMA, 48 MiB written, compared on both sides; again after a link failure"

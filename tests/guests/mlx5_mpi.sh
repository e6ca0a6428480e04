#!/bin/bash
# mlx5_mpi.sh KERNEL: OpenMPI between two stock guests, one process on each: messages there and back and allreduce, every
# byte and sum compared (guests/applications/mpi_check.c). UCX carries them over the RNICs, and the RNICs' own counters
# say that it did; mpirun reaches the other guest by ssh over the RNICs' netdevs.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/pair.sh"

kernel=$1
applications_initrd "$kernel" "$WORK/initrd"
start_pair mpi --kernel "$BOOT_KERNEL" --initrd "$WORK/initrd" --memory 1024 --append "$BOOT_APPEND"
left sh -c 'mkdir -p /root/.ssh && ssh-keygen -q -t ed25519 -N "" -f /root/.ssh/id_ed25519 &&
    echo "StrictHostKeyChecking no" >/root/.ssh/config && cat /root/.ssh/id_ed25519.pub' >"$WORK/key" || fail "left's key"
"$ORRERY" exec right --stdin -- sh -c 'umask 77; mkdir -p /root/.ssh && cat >/root/.ssh/authorized_keys &&
    ssh-keygen -A >/dev/null && /usr/sbin/sshd' <"$WORK/key" || fail "right's sshd"
left hostname left
right hostname right
# What the RNIC has received by RDMA, in words of four bytes; the netdev's frames count in neither.
received() { "$1" cat /sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data; }
count=0
[ "$LEFT_GID" = "$RIGHT_GID" ] || fail "GIDs $LEFT_GID and $RIGHT_GID: one setting can't serve both processes"
# First UCX chooses. (Debian's /etc/openmpi leaves UCX out unless it is named.)
for transport in any rc_v rc_x ud_x; do
    before=$(received right)
    # shellcheck disable=SC2016  # the guest's shell expands it
    left sh -c 'if [ "$1" = any ]; then shift; else export UCX_TLS=$1,self; set -- -x UCX_TLS; fi
        exec timeout 200 mpirun.openmpi --allow-run-as-root --host 10.7.0.1,10.7.0.2 -n 2 --map-by node:OVERSUBSCRIBE \
            --prtemca prte_silence_shared_fs 1 --mca pml ucx "$@" -x UCX_IB_GID_INDEX="$0" /usr/bin/mpi_check' \
        "$LEFT_GID" "$transport" >"$WORK/mpi-$transport.log" 2>&1 || fail "$transport"
    has "$WORK/mpi-$transport.log" '^mpi_check: on left and right$' || fail "$transport: not one process on each"
    has "$WORK/mpi-$transport.log" '^mpi_check: all right$' || fail "$transport: no verdict"
    # 40 messages each way with 4 x 4 MiB among them, and the vectors: more than 20 MB.
    [ $((($(received right) - before) * 4)) -gt 20000000 ] || fail "$transport: the RNIC didn't carry it"
    count=$((count + 1))
done
stop_pair mpi
pass "$kernel: OpenMPI over $count transports of UCX: ping-pong and allreduce, every byte and sum right"

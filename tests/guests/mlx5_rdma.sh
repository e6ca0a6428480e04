#!/bin/bash
# mlx5_rdma.sh KERNEL [full]: stock programs move data between two RNICs of a guest with InfiniBand ports; in timed mode
# too, recorded and replayed. full: RC by polling and by events, large messages, an SRQ, RDMA WRITE and READ of
# perftest. Every buffer is registered by the driver's UMR work requests.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

kernel=$1
full=${2:-}
if [ -n "$full" ]; then
    # pair NAME PROGRAM: server on mlx5_0, client on mlx5_1; each side's status counts. perftest times itself by the
    # emulated CPU's cycle counter, and gives up if that ran unevenly: once more, then.
    # shellcheck disable=SC2016  # the guest's shell expands it
    script='
        modprobe mlx5_ib && modprobe ib_uverbs || exit 1;
        for i in 1 2 3 4 5 6 7 8 9; do [ -e /sys/class/infiniband/mlx5_1 ] && break; sleep 1; done;
        pair() {
            name=$1; shift;
            for try in 1 2 3 4 5; do
                $@ -d mlx5_0 >/tmp/server 2>&1 & server=$!; sleep 2;
                $@ -d mlx5_1 127.0.0.1 >/tmp/client 2>&1; client=$?;
                wait $server && [ $client -eq 0 ] && echo done:$name && return;
                cat /tmp/server /tmp/client;
                grep -q produce.a.report /tmp/server /tmp/client || return;
            done; };
        pair rc ibv_rc_pingpong -n 200;
        pair events ibv_rc_pingpong -e -n 100;
        pair large ibv_rc_pingpong -s 1048576 -n 20;
        pair srq ibv_srq_pingpong -n 100;
        pair write ib_write_bw -n 100;
        pair read ib_read_bw -n 100;
        sleep 1'
    boot "$WORK/rdma.log" --set rnic.personality=mlx5 --set rnic.port_type=infiniband --set topology.switches=0 --set topology.rnics=2 \
        --set topology.gpus=0 --kernel "$kernel" --append "loglevel=5 orrery.run=/bin/sh -- -c \"${script//$'\n'/ }\""
    [ "$STATUS" -eq 0 ] || fail "status $STATUS"
    for test in rc events large srq write read; do
        has "$WORK/rdma.log" "done:$test" || fail "$test"
    done
    has "$WORK/rdma.log" 'mlx5_[01]: (dump_cqe|.*failed)|cut here' && fail "the driver complained"
fi

# In timed mode, recorded: replayed without the guest, firmware and fabric come to the same trace.
script='modprobe mlx5_ib && modprobe ib_uverbs || exit 1; sleep 2;
    ibv_rc_pingpong -d mlx5_0 -n 20 & sleep 2; ibv_rc_pingpong -d mlx5_1 -n 20 127.0.0.1 && wait $! && echo done:timed;
    sleep 1'
boot "$WORK/timed.log" --set rnic.personality=mlx5 --set rnic.port_type=infiniband --set topology.switches=0 --set topology.rnics=2 \
    --set topology.gpus=0 --set time.mode=timed --set "record.file=$WORK/run.rec" --kernel "$kernel" \
    --append "loglevel=5 orrery.run=/bin/sh -- -c \"${script//$'\n'/ }\""
has "$WORK/timed.log" '^done:timed' || fail "timed mode"
hash=$(sed -n 's/.*trace hash \([0-9a-f]*\).*/\1/p' "$WORK/timed.log")
[ -n "$hash" ] || fail "no trace hash"
"$ORRERY" replay "$WORK/run.rec" >"$WORK/replay.log" 2>&1 || fail "the replay"
has "$WORK/replay.log" "trace hash $hash" || fail "another hash than $hash"
pass "$kernel: pingpong between two RNICs${full:+, events, large messages, SRQ, RDMA WRITE and READ}; replayed to $hash"

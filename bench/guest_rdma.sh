#!/bin/bash
# What perftest measures between two guests under TCG on one server, functional mode: bandwidth of 64 KiB writes, latency
# of 2-byte writes, rate of 8-byte writes, by the guests' clocks. Prints perftest's own lines; asserts nothing.
#   bench/guest_rdma.sh [ROUNDS] [KERNEL]
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3}
kernel=${2:-7.3-cloud}
case $rounds in '' | *[!0-9]* | 0) rounds=3 ;; esac
ORRERY=${ORRERY:-build/release/cli/orrery}
[ -x "$ORRERY" ] || {
    echo "bench/guest_rdma.sh: there is no program at $ORRERY; ./dev build makes it" >&2
    exit 1
}
# shellcheck source=tests/guests/lib.sh
. tests/guests/lib.sh
# shellcheck source=tests/guests/pair.sh
. tests/guests/pair.sh
start_pair bench --kernel "$kernel" --memory 768
for side in left right; do
    # shellcheck disable=SC2016  # the guest's shell expands it
    $side sh -c 'ip link set "$(ls /sys/class/infiniband/mlx5_0/device/net)" mtu 9000'
done
sleep 1
measure() {
    perftest_pair "$1" 10.7.0.1 "$@"
    grep -A1 '#bytes' "$WORK/$1-right.log"
}
for _ in $(seq "$rounds"); do
    measure ib_write_bw -F -s 65536 -n 20000
    measure ib_write_lat -F -s 2 -n 3000
    measure ib_write_bw -F -s 8 -n 20000
done
kill "$PID"
wait "$PID" || true

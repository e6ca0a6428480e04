#!/bin/bash
# mlx5_kernels.sh LEFT_KERNEL RIGHT_KERNEL: two stock guests of different kernels (or the same), each way: the netdev, the
# pingpongs, perftest's four operations, rdma_cm, and every byte compared.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/pair.sh"

# shellcheck disable=SC2034  # start_pair reads them
LEFT_KERNEL=$1 RIGHT_KERNEL=$2
start_pair kernels --memory 512
declare -A kernel=([left]=$1 [right]=$2) address=([left]=10.7.0.1 [right]=10.7.0.2) gid=([left]=$LEFT_GID [right]=$RIGHT_GID)

# meet NAME SERVER… -- CLIENT…: both commands, on $server and $client; both must succeed.
meet() {
    local name=$1 status=0 pid
    local -a first=()
    shift
    while [ "$1" != -- ]; do
        first+=("$1")
        shift
    done
    shift
    "$ORRERY" exec "$server" --timeout 60 -- "${first[@]}" >"$WORK/$name-server.log" 2>&1 &
    pid=$!
    sleep 2
    "$ORRERY" exec "$client" --timeout 60 -- "$@" >"$WORK/$name-client.log" 2>&1 || status=$?
    wait "$pid" || status=$?
    [ "$status" -eq 0 ] || fail "$name, server on ${kernel[$server]}, client on ${kernel[$client]}: status $status"
}
# verbs NAME PROGRAM…: a program that is told its device and its GID's index.
verbs() {
    local name=$1
    shift
    meet "$name" "$@" -d mlx5_0 -g "${gid[$server]}" -- "$@" -d mlx5_0 -g "${gid[$client]}" "${address[$server]}"
}

for side in left right; do
    "$ORRERY" exec "$side" -- uname -r >"$WORK/$side-kernel"
    has "$WORK/$side-kernel" "^${kernel[$side]%-cloud}\\..*-cloud-" || fail "$side's kernel isn't ${kernel[$side]}"
done
for way in 'left right' 'right left'; do
    read -r server client <<<"$way"
    "$ORRERY" exec "$client" -- ping -q -c 2 -W 2 "${address[$server]}" >"$WORK/ping.log" 2>&1 || fail "ping from $client"
    meet tcp iperf3 -s -1 -- iperf3 -c "${address[$server]}" -n 8M
    for transport in rc uc ud srq xsrq; do verbs "$transport" "ibv_${transport}_pingpong" -n 50; done
    # Random operations; each byte compared on both sides, and what is around them untouched.
    verbs compared orrery-guest-verbs -n 20 -s 300000
    has "$WORK/compared-client.log" '^[0-9]+ x WRITE$' || fail "compared: the client did no WRITE"
    meet rping rping -s -a "${address[$server]}" -C 5 -V -- rping -c -a "${address[$server]}" -C 5 -V
    meet ucmatose ucmatose -b "${address[$server]}" -- ucmatose -s "${address[$server]}"
    meet udaddy udaddy -b "${address[$server]}" -- udaddy -s "${address[$server]}"
done
# perftest serves on the left; each operation goes one way, READ against it.
for operation in send write read atomic; do perftest_pair "$operation" 10.7.0.1 "ib_${operation}_lat" -n 100; done
stop_pair kernels
pass "$1 and $2: netdev, pingpongs, perftest, rdma_cm and compared data, each way"

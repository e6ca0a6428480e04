#!/bin/bash
# mlx5_roce_loss.sh KERNEL: a wire that loses, repeats and reorders 0.1, 1 and 5 % of its packets, damages some: every
# byte arrives where it belongs, stock programs end well, and the counters show what the wire did.
set -euo pipefail
here=$(dirname "$0")
. "$(dirname "$0")/lib.sh"

kernel=$1
cat "$here/roce_guest.sh" - >"$WORK/script" <<'GUEST'
set_up
# The kernel asks three times for a neighbour's address and gives up: known ones keep that out of the way.
mac_left=$(left cat "/sys/class/net/$netdev_left/address") mac_right=$(right cat "/sys/class/net/$netdev_right/address")
for host in 10.7.0. fd07::; do
    ip -n right neighbour replace "${host}1" lladdr "$mac_left" dev "$netdev_right" nud permanent
    ip -n left neighbour replace "${host}2" lladdr "$mac_right" dev "$netdev_left" nud permanent
done
check polled -n 30 -g "$v2_ipv4"
check events -n 20 -e -S 2 -g "$v1_ipv6"
check large -n 4 -s 1000000 -S 3 -g "$v2_ipv6"
perf srq ibv_srq_pingpong -n 300 -g "$v2_ipv4"
perf send ib_send_bw -n 300 -q 4 -x "$v2_ipv4"
perf read ib_read_bw -n 300 -x "$v2_ipv4"
# 5 % on each of two links, damage on top: too much for rdma_cm's and TCP's patience.
if [ "$rate" != 0.05 ]; then
    across rping 'rping -s -a 10.7.0.1 -C 20 -V' 'rping -c -a 10.7.0.1 -C 20 -V'
    across tcp 'iperf3 -s -1' 'iperf3 -c 10.7.0.1 -n 4M'
fi
[ "$(counter 1 local_ack_timeout_err)" -gt 0 ] && [ "$(counter 0 duplicate_request)" -gt 0 ] && echo done:seen
GUEST
for rate in 0.001 0.01 0.05; do
    start_boot "$WORK/boot.$rate.log" --set rnic.personality=mlx5 --set rnic.port_type=ethernet \
        --set topology.switches=0 --set topology.rnics=2 --set topology.gpus=0 --set "network.loss=$rate" \
        --set "network.corruption=$rate" --set "network.duplication=$rate" --set "network.reordering=$rate" \
        --kernel "$kernel" --append loglevel=5 --run roce --no-console
    until_true 120 "the guest" "$ORRERY" exec roce/guest0 -- true
    "$ORRERY" exec roce/guest0 --stdin --timeout 500 -- env rate="$rate" sh -s <"$WORK/script" >"$WORK/guest.$rate.log" 2>&1 ||
        fail "the script at $rate"
    tests=(polled events large srq send read seen)
    [ "$rate" = 0.05 ] || tests+=(rping tcp)
    for test in "${tests[@]}"; do
        has "$WORK/guest.$rate.log" "^done:$test\$" || fail "$test at $rate"
    done
    kill "$PID"
    wait "$PID" || true
done
pass "$kernel: every byte right at 0.1, 1 and 5 % of loss, damage, duplication and reordering"

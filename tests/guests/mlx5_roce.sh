#!/bin/bash
# mlx5_roce.sh KERNEL: two RNICs with Ethernet ports in a stock guest, each netdev in a network namespace: its GID table,
# ping and TCP, verbs over RoCE v1 and v2, IPv4 and IPv6, rdma_cm, data compared byte by byte, counters, the end of
# one side, a link that is down, a function reset, and reloaded modules. mlx5_roce_full.sh has more of each.
set -euo pipefail
here=$(dirname "$0")
. "$(dirname "$0")/lib.sh"

kernel=$1
start_boot "$WORK/boot.log" --set rnic.personality=mlx5 --set rnic.port_type=ethernet --set topology.switches=0 \
    --set topology.rnics=2 --set topology.gpus=0 --kernel "$kernel" --append loglevel=5 --run roce --no-console
until_true 120 "the guest" "$ORRERY" exec roce/guest0 -- true

cat "$here/roce_guest.sh" - >"$WORK/script" <<'GUEST'
set_up
[ "$(ibv_devinfo -v -d mlx5_0 | grep -c 'GID.*RoCE v[12]')" -eq 6 ] && echo done:gids
left ping -q -c 2 -W 2 10.7.0.2 && left ping -q -6 -c 2 -W 2 fd07::2 && left ping -q -c 1 -W 2 -s 20000 10.7.0.2 &&
    echo done:ping
across tcp 'iperf3 -s -1' 'iperf3 -c 10.7.0.1 -n 8M'

perf rc ibv_rc_pingpong -e -n 20 -g "$v1_ipv4"
perf ud ibv_ud_pingpong -n 20 -g "$v2_ipv6"
perf xsrq ibv_xsrq_pingpong -n 20 -g "$v2_ipv4"
perf write ib_write_bw -n 50 -q 4 -x "$v2_ipv4"
across send 'ib_send_bw -R -n 50 -d mlx5_0' 'ib_send_bw -R -n 50 -d mlx5_1 10.7.0.1'
across rping 'rping -s -a 10.7.0.1 -C 5 -V' 'rping -c -a 10.7.0.1 -C 5 -V'
across udaddy 'udaddy -b 10.7.0.1' 'udaddy -s 10.7.0.1'

# Every byte, and counters that agree with what was done.
check check_v1 -n 10 -g "$v1_ipv6" -e
writes=$(counter 0 rx_write_requests) atomics=$(counter 0 rx_atomic_requests)
check check_v2 -n 20 -g "$v2_ipv6"
[ $(($(counter 0 rx_write_requests) - writes)) -eq $(($(of WRITE) + $(of 'WRITE with immediate'))) ] &&
    [ $(($(counter 0 rx_atomic_requests) - atomics)) -eq $(($(of 'fetch & add') + $(of 'compare & swap'))) ] &&
    [ "$(counter 0 port_xmit_packets)" -eq "$(counter 1 port_rcv_packets)" ] &&
    [ "$(counter 0 port_rcv_data)" -eq "$(counter 1 port_xmit_data)" ] && echo done:counters
left ethtool -S "$netdev_left" >/tmp/ethtool &&
    grep -q "rx_vport_rdma_unicast_packets: $(counter 0 port_rcv_packets)\$" /tmp/ethtool && echo done:ethtool

# The server dies: the client's QP fails with "transport retry counter exceeded", perftest's status 12.
left ib_write_bw -D 20 -x "$v2_ipv4" -d mlx5_0 >/dev/null 2>&1 &
sleep 1
timeout 20 ip netns exec right ib_write_bw -D 15 -x "$v2_ipv4" -d mlx5_1 10.7.0.1 >/tmp/client.log 2>&1 &
client=$!
for _ in 1 2 3 4 5 6 7 8 9 10; do
    [ "$(counter 0 rx_write_requests)" -gt $((writes + 500)) ] && break
    sleep 0.5
done
for process in $(ip netns pids left); do kill -9 "$process"; done
if ! wait "$client" && grep -q 'Failed status 12' /tmp/client.log; then echo done:killed; else failed killed; fi
[ "$(objects)" -eq 0 ] && echo done:no_objects

# A port that is down.
ip -n left link set "$netdev_left" down
rdma link show mlx5_0/1 | grep -q DOWN && ! right ping -q -c 1 -W 1 10.7.0.1 >/dev/null && echo done:down
ip -n left link set "$netdev_left" up
sleep 0.5
perf up ibv_rc_pingpong -n 20 -g "$v2_ipv4"

# The driver recovers from a function reset by itself; the netdev is back where it was born.
echo 1 >/sys/class/infiniband/mlx5_0/device/reset
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    dmesg | grep -q 'health recovery succeeded' && break
    sleep 0.5
done
ip -n right link set "$netdev_right" netns 1
set_up
perf reset ibv_rc_pingpong -n 20 -g "$v2_ipv4"
dmesg | grep -Ei 'TX timeout|min RX wqes|cut here|Call Trace|dump_cqe|cmd_out_err' | head -n 5
# And from being loaded anew.
for side in left right; do
    eval "ip -n $side link set \$netdev_$side netns 1"
done
modprobe -r mlx5_ib && modprobe -r mlx5_core && modprobe -a mlx5_core mlx5_ib rdma_ucm || echo FAILED:modprobe
set_up
perf reloaded ibv_rc_pingpong -n 20 -g "$v2_ipv4"
GUEST
"$ORRERY" exec roce/guest0 --stdin --timeout 300 -- sh -s <"$WORK/script" >"$WORK/guest.log" 2>&1 || fail "the script"
for test in gids ping tcp rc ud xsrq write send rping udaddy check_v1 check_v2 counters ethtool killed no_objects down up \
    reset reloaded; do
    has "$WORK/guest.log" "^done:$test\$" || fail "$test"
done
has "$WORK/guest.log" 'TX timeout|min RX wqes|cut here|Call Trace|dump_cqe|cmd_out_err' && fail "the driver complained"
pass "$kernel: RoCE v1 and v2 over IPv4 and IPv6, rdma_cm, data, counters, a dead peer, link down, reset, reload"

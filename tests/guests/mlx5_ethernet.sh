#!/bin/bash
# mlx5_ethernet.sh KERNEL: the netdevs of two RNICs of a stock guest, each in a network namespace, reach each other:
# ping over IPv4 and IPv6, fragments, and TCP in large packets that the RNIC cuts.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

kernel=$1
# shellcheck disable=SC2016  # the guest's shell expands it
script='
    sleep 2;
    set -- $(ls -d /sys/bus/pci/drivers/mlx5_core/0000*/net/* | sed s,.*/,,);
    [ $# -eq 2 ] || exit 1;
    ip netns add left && ip netns add right || exit 2;
    ip link set $1 netns left; ip link set $2 netns right;
    in_left() { ip netns exec left $@; }; in_right() { ip netns exec right $@; };
    in_left ip addr add 10.7.0.1/24 dev $1; in_right ip addr add 10.7.0.2/24 dev $2;
    in_left ip addr add fd07::1/64 dev $1 nodad; in_right ip addr add fd07::2/64 dev $2 nodad;
    in_left ip link set $1 up; in_right ip link set $2 up;
    sleep 1;
    in_left ping -c 3 -W 2 10.7.0.2 && echo done:ping4;
    in_left ping -c 3 -W 2 -s 20000 10.7.0.2 && echo done:fragments;
    in_left ping -6 -c 3 -W 2 fd07::2 && echo done:ping6;
    in_right iperf3 -s -1 -D && sleep 1 && in_left iperf3 -c 10.7.0.2 -n 64M && echo done:tcp;
    ip -s -n right link;
    dmesg | grep -i mlx5; sleep 1'
boot "$WORK/ethernet.log" --set rnic.personality=mlx5 --set rnic.port_type=ethernet --set topology.switches=0 \
    --set topology.rnics=2 --set topology.gpus=0 --kernel "$kernel" \
    --append "loglevel=5 orrery.run=/bin/sh -- -c \"${script//$'\n'/ }\""
[ "$STATUS" -eq 0 ] || fail "status $STATUS"
for test in ping4 fragments ping6 tcp; do
    has "$WORK/ethernet.log" "done:$test" || fail "$test"
done
has "$WORK/ethernet.log" 'Failed to get min RX wqes|TX timeout|cut here' && fail "the driver complained"
pass "$kernel: ping over IPv4 and IPv6, fragments and TCP between two netdevs"

#!/bin/bash
# mlx5_roce_full.sh KERNEL: libibverbs' examples, perftest and the rdma_cm programs over RoCE v1 and v2, and what the wire
# carried: tshark decodes every packet, and counts what the guest counts.
set -euo pipefail
here=$(dirname "$0")
. "$(dirname "$0")/lib.sh"

kernel=$1
# in_guest LOG SCRIPT ARGUMENTS…: a script of roce_guest.sh in a guest of its own; every test of it is to succeed.
in_guest() {
    local log=$1 script=$2 test
    shift 2
    start_boot "$log.boot.log" --set rnic.personality=mlx5 --set rnic.port_type=ethernet --set topology.switches=0 \
        --set topology.rnics=2 --set topology.gpus=0 --kernel "$kernel" --append loglevel=5 --run roce --no-console "$@"
    until_true 120 "the guest" "$ORRERY" exec roce/guest0 -- true
    cat "$here/roce_guest.sh" "$script" >"$WORK/script"
    "$ORRERY" exec roce/guest0 --stdin --timeout 1500 -- sh -s <"$WORK/script" >"$log" 2>&1 || fail "the script"
    has "$log" '^done:' 10 || fail "nothing was tested"
    test=$(sed -n 's/^FAILED:\(.*\)/\1/p' "$log" | head -n 1)
    [ -z "$test" ] || fail "$test"
    kill "$PID"
    wait "$PID" || true
}

# Short ones, captured.
cat >"$WORK/short" <<'GUEST'
set_up
for kind in v1_ipv4 v2_ipv4 v1_ipv6 v2_ipv6 v2_local; do
    eval "at=\$$kind"
    check "check:$kind" -n 5 -g "$at"
    for type in rc uc ud srq xsrq; do
        perf "$type:$kind" "ibv_${type}_pingpong" -n 5 -g "$at"
    done
done
across ucmatose 'ucmatose -b 10.7.0.1' 'ucmatose -s 10.7.0.1'
across udaddy 'udaddy -b 10.7.0.1' 'udaddy -s 10.7.0.1'
across rping 'rping -s -a fd07::1 -C 5 -V' 'rping -c -a fd07::1 -C 5 -V'
across mckey 'mckey -m 239.1.1.1 -b 10.7.0.1' 'mckey -m 239.1.1.1 -b 10.7.0.2 -s'
sleep 1
for side in left right; do
    number=$([ "$side" = left ] && echo 0 || echo 1)
    eval "mac=\$($side cat /sys/class/net/\$netdev_$side/address)"
    echo "counted:$mac:$(counter $number port_xmit_packets):$(counter $number port_xmit_data)"
done
GUEST
in_guest "$WORK/short.log" "$WORK/short" --set "network.capture=$WORK/wire.pcapng"
tshark -r "$WORK/wire.pcapng" --disable-protocol rpcordma --disable-protocol iser --disable-protocol smc -T fields \
    -e eth.src -e frame.len -e _ws.malformed -Y 'udp.dstport == 4791 || eth.type == 0x8915' \
    >"$WORK/packets" 2>"$WORK/tshark.log" || fail "tshark"
awk -F '\t' '$3 != "" { ++bad } END { exit bad > 0 || NR < 1000 }' "$WORK/packets" || fail "tshark finds malformed packets"
has "$WORK/short.log" '^counted:' 2 || fail "no counters"
# (Protocols above RDMA that tshark guesses from a payload are off: ours is random.)
# Each packet passes two taps, the sender's and the receiver's.
while IFS=: read -r _ a b c d e f packets words; do
    awk -F '\t' -v mac="$a:$b:$c:$d:$e:$f" -v packets="$packets" -v words="$words" '
        $1 == mac { ++seen; bytes += $2 }
        END { exit !(seen > 0 && seen == 2 * packets && int(bytes / 2 / 4) == words) }' "$WORK/packets" ||
        fail "the counters of $a:$b:$c:$d:$e:$f don't agree with the capture"
done < <(grep '^counted:' "$WORK/short.log")

# Long ones.
cat >"$WORK/long" <<'GUEST'
set_up
for operation in write send read atomic; do
    perf "${operation}_lat" "ib_${operation}_lat" -n 100 -x "$v2_ipv4"
    across "${operation}_cm" "ib_${operation}_bw -R -n 100 -d mlx5_0" "ib_${operation}_bw -R -n 100 -d mlx5_1 10.7.0.1"
    perf "${operation}_16" "ib_${operation}_bw" -q 16 -n 100 -x "$v2_ipv4"
    perf "${operation}_64" "ib_${operation}_bw" -q 64 -n 50 -x "$v2_ipv4"
    perf "${operation}_both" "ib_${operation}_bw" -b -n 100 -x "$v2_ipv4"
    for kind in v1_ipv4 v1_ipv6 v2_ipv6; do
        eval "at=\$$kind"
        perf "${operation}:$kind" "ib_${operation}_bw" -n 100 -x "$at"
    done
done
# Not -a: perftest measures the clock anew for each size, and one straight line too few ends it.
for bytes in 1 1023 1025 65537 1048576 8388608; do
    for operation in write send read; do
        perf "${operation}:$bytes" "ib_${operation}_bw" -s "$bytes" -n 5 -x "$v2_ipv4"
    done
done
perf send_events ib_send_bw -e -n 100 -x "$v2_ipv4"
perf send_srq ib_send_bw --use-srq -q 4 -n 100 -x "$v2_ipv4"
perf send_uc ib_send_bw -c UC -n 100 -x "$v2_ipv4"
perf write_uc ib_write_bw -c UC -n 100 -x "$v1_ipv4"
perf send_ud ib_send_bw -c UD -n 100 -x "$v2_ipv6"
perf send_xrc ib_send_bw -c XRC -n 100 -x "$v2_ipv4"
# Jumbo frames: an MTU of 4096.
ip -n left link set "$netdev_left" mtu 9000
ip -n right link set "$netdev_right" mtu 9000
sleep 0.5
ibv_devinfo -d mlx5_0 | grep -q 'active_mtu:.*4096' && ibv_devinfo -d mlx5_1 | grep -q 'active_mtu:.*4096' || echo FAILED:mtu
check jumbo -n 10 -s 300000 -g "$v2_ipv4"
check jumbo_many -n 10 -o 200 -s 20000 -g "$v1_ipv4"
GUEST
in_guest "$WORK/long.log" "$WORK/long"
pass "$kernel: pingpongs, perftest and rdma_cm over RoCE v1 and v2; every packet decodes; counters agree with the capture"

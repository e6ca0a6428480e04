#!/bin/bash
# two_servers.sh LEFT_KERNEL RIGHT_KERNEL
# Two servers, each a process with a guest of its own, linked over a UNIX socket and over TCP: pingpong, RDMA WRITE and
# READ between their RNICs; a server that is killed under a transfer, and comes back; servers that must not be linked.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/pair.sh"

declare -A kernel=([left]=$1 [right]=$2)
(umask 077 && mkdir "$WORK/link" && head -c 32 /dev/urandom | base64 >"$WORK/link/token")
# What the programs exchange before they use the RNICs goes over a virtio network between the guests.
declare -A peer=([left]=right [right]=left) number=([left]=1 [right]=2)
port=$((20000 + RANDOM % 10000))
# start NAME LOG ADDRESS ARGUMENTS…: a server with its guest. ADDRESS: of network.link.0.
start() {
    local name=$1 log=$2 address=$3
    shift 3
    start_boot "$log" --run "$name" --json --kernel "${kernel[$name]}" --memory 512 --no-network \
        --set "server.name=$name" --set "server.index=${number[$name]}" --set "guest.0.name=$name" \
        --set rnic.personality=mlx5 --set rnic.port_type=infiniband --set topology.switches=0 --set topology.rnics=1 --set topology.gpus=0 \
        --set "network.link.0.token_file=$WORK/link/token" --set "network.link.0.address=$address" \
        --qemu -netdev --qemu "dgram,id=between,local.type=unix,local.path=$WORK/link/$name.net,remote.type=unix,remote.path=$WORK/link/${peer[$name]}.net" \
        --qemu -device --qemu "virtio-net-pci,bus=pcie.0,netdev=between,mac=52:54:00:09:00:0${number[$name]}" "$@"
}
in_guest() { "$ORRERY" exec "$1" -- sh -c "$2"; }
# ready NAME: its guest is up, with its RNIC and an address towards the other guest.
ready() {
    until_true 60 "$1's guest" "$ORRERY" exec "$1" -- true
    in_guest "$1" "modprobe mlx5_ib && modprobe ib_uverbs && modprobe virtio_net
        for i in 1 2 3 4 5 6 7 8 9; do ibv_devinfo -d mlx5_0 2>/dev/null | grep -q PORT_ACTIVE && break; sleep 1; done
        device=\$(grep -l 52:54:00:09 /sys/class/net/*/address | cut -d/ -f5)
        ip addr add 10.9.0.${number[$1]}/24 dev \$device && ip link set \$device up" >"$WORK/$1-ready.log" 2>&1 ||
        fail "$1's RNIC or network"
}
pair() {
    local name=$1
    shift
    perftest_pair "$name" 10.9.0.1 "$@"
}

start left "$WORK/left.log" "unix:$WORK/link/socket" --set network.link.0.listen=true
left=$PID
# The second link is for later, when the left server will listen there.
start right "$WORK/right.log" "unix:$WORK/link/socket" --set "network.link.1.address=tcp:$port" \
    --set "network.link.1.token_file=$WORK/link/token"
until_true 30 "the link" has "$WORK/right.log" 'network.link.0: linked to left over unix:'
ready left
ready right
in_guest right 'ping -c 2 -W 5 10.9.0.1' >"$WORK/ping.log" 2>&1 || fail "the network between the guests"
pair rc ibv_rc_pingpong -n 200 -c
pair large ibv_rc_pingpong -s 1048576 -n 20 -c
pair write_bw ib_write_bw -n 500
pair read_lat ib_read_lat -n 100
bandwidth=$(awk '$1 == 65536 { print $4 }' "$WORK/write_bw-right.log")
for name in left right; do
    in_guest "$name" 'uname -r' >"$WORK/$name-kernel"
    has "$WORK/$name-kernel" "^${kernel[$name]%-cloud}\\..*-cloud-" || fail "$name's kernel isn't ${kernel[$name]}"
done
pass "over a UNIX socket: RC pingpong, large messages, RDMA WRITE ($bandwidth MiB/s) and READ"

# The left server dies under a transfer: the right guest's QP ends with "retry exceeded" (status 12), and nothing else.
"$ORRERY" exec left -- ib_write_bw -d mlx5_0 --run_infinitely -D 60 >"$WORK/killed-left.log" 2>&1 &
STARTED+=($!)
sleep 2
"$ORRERY" exec right -- ib_write_bw -d mlx5_0 --run_infinitely -D 60 10.9.0.1 >"$WORK/killed-right.log" 2>&1 &
client=$!
STARTED+=("$client")
sleep 5
kill -KILL "$left"
wait "$client" && fail "a write to a server that is gone succeeded"
has "$WORK/killed-right.log" 'status 12|transport retry counter exceeded' || fail "not a retry error"
until_true 10 "the loss" has "$WORK/right.log" 'the link to left has ended'
pass "a killed server: the peer's connection ends with a retry error"

# It comes back, on TCP, and the same guest goes on with it.
kill -KILL "$(qemu_pid "$WORK/left.log")" 2>/dev/null || true
start left "$WORK/left2.log" "tcp:$port" --set network.link.0.listen=true
until_true 30 "the link, again" has "$WORK/left2.log" 'linked to right over tcp:'
ready left
pair again ibv_rc_pingpong -n 100 -e -c
pair again_read ib_read_bw -n 100
pass "over TCP: the link and the guest's RNIC recover when the server is back"

# Servers that must not be linked are told why, on both sides, while those that are linked work on.
impostor() { # WHAT PATTERN ARGUMENTS…
    local what=$1 pattern=$2
    shift 2
    start_server "$WORK/impostor" "$WORK/impostor.log" --set rnic.personality=mlx5 --set rnic.port_type=infiniband --set "network.link.0.address=tcp:$port" \
        --set "network.link.0.token_file=$WORK/link/token" "$@"
    until_true 20 "$what: the impostor's error" has "$WORK/impostor.log" "$pattern"
    until_true 20 "$what: the server's error" has "$WORK/left2.log" "no link with .*$pattern"
    kill "$SERVER"
    wait "$SERVER" || true
}
(umask 077 && head -c 32 /dev/urandom | base64 >"$WORK/link/other")
impostor "a twin" 'RNICs of two servers have the same addresses' --set "server.index=${number[right]}"
impostor "another token" 'the shared token differs' --set server.index=3 --set "network.link.0.token_file=$WORK/link/other"
pair still ibv_rc_pingpong -n 20 -e -c
pass "a twin and a stranger are refused by name"

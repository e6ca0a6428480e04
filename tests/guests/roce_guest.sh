# shellcheck shell=dash
# Runs inside a guest with two RNICs of port type Ethernet: `orrery exec GUEST --stdin -- sh -s`, followed by the tests
# proper. Each RNIC's netdev is in a network namespace of its own, so that what goes between them uses the wire:
# mlx5_0 in "left" (10.7.0.1, fd07::1), mlx5_1 in "right" (10.7.0.2, fd07::2).
#
# A test prints "done:NAME" when it was right, else what its programs said.
set -u

left() { ip netns exec left "$@"; }
right() { ip netns exec right "$@"; }

# set_up: namespaces, addresses, links; waits for the last GID of both tables.
set_up() {
    for side in left right; do
        ip netns list | grep -q "^$side" || ip netns add "$side"
        ip -n "$side" link set lo up
    done
    number=0
    for side in left right; do
        for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
            netdev=$(ls "/sys/class/infiniband/mlx5_$number/device/net" 2>/dev/null) && [ -n "$netdev" ] && break
            sleep 0.5
        done
        ip link set "$netdev" netns "$side"
        number=$((number + 1))
        # shellcheck disable=SC2086 # these are words
        ip -n "$side" -batch - <<BATCH
address add 10.7.0.$number/24 dev $netdev
address add fd07::$number/64 dev $netdev nodad
link set $netdev up
BATCH
        eval "netdev_$side=$netdev"
    done
    for number in 0 1; do
        for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
            grep -q 'RoCE v2' "/sys/class/infiniband/mlx5_$number/ports/1/gid_attrs/types/5" 2>/dev/null && break
            sleep 0.3
        done
    done
    # shellcheck disable=SC2034 # for the tests
    {
        v1_ipv4=$(gid 'IB/RoCE v1' ffff:0a07:000)
        v2_ipv4=$(gid 'RoCE v2' ffff:0a07:000)
        v1_ipv6=$(gid 'IB/RoCE v1' fd07:)
        v2_ipv6=$(gid 'RoCE v2' fd07:)
        v2_local=$(gid 'RoCE v2' fe80:)
    }
}

# gid TYPE PART: index of the GID of that type with that text in it, the same for both RNICs.
gid() {
    for at in 0 1 2 3 4 5 6 7; do
        same=0
        for number in 0 1; do
            port=/sys/class/infiniband/mlx5_$number/ports/1
            [ "$(cat "$port/gid_attrs/types/$at" 2>/dev/null)" = "$1" ] && grep -q "$2" "$port/gids/$at" &&
                same=$((same + 1))
        done
        [ "$same" -eq 2 ] && echo "$at" && return
    done
    echo "no GID of type $1 with $2" >&2
    exit 1
}

failed() {
    echo "FAILED:$1"
    sed 's/^/  server: /' /tmp/server.log
    sed 's/^/  client: /' /tmp/client.log
    dmesg | tail -n 5
}

# both NAME WAIT SERVER CLIENT: two commands at once, both of which must succeed. WAIT: TCP port on which the server
# listens here, or seconds to give it. perftest measures the clock first and gives up if the machine is too busy for a
# straight line: then it is tried again.
both() {
    for _ in 1 2 3 4 5; do
        # shellcheck disable=SC2086 # these are words
        timeout 90 $3 >/tmp/server.log 2>&1 &
        server=$!
        case $2 in
        [0-9][0-9][0-9]*)
            for _ in 1 2 3 4 5 6 7 8 9 10; do
                ss -Hltn | grep -q ":$2 " && break
                sleep 0.2
            done
            ;;
        *) sleep "$2" ;;
        esac
        # shellcheck disable=SC2086
        timeout 90 $4 >/tmp/client.log 2>&1
        client=$?
        wait "$server"
        server=$?
        grep -q 'produce a report' /tmp/server.log /tmp/client.log || break
    done
    if [ "$client" -eq 0 ] && [ "$server" -eq 0 ]; then echo "done:$1"; else failed "$1"; fi
}
# across NAME SERVER CLIENT: through the netdevs too, as rdma_cm and TCP do: server on the left, client on the right.
across() { both "$1" 0.7 "ip netns exec left $2" "ip netns exec right $3"; }
# perf NAME PROGRAM OPTIONS…, check NAME OPTIONS…: perftest and libibverbs' examples, our data checker. The two sides agree
# over the loopback device; what they send by RDMA goes from netdev to netdev, by the GIDs that they choose.
perf() {
    name=$1
    shift
    both "$name" 18515 "$* -d mlx5_0" "$* -d mlx5_1 127.0.0.1"
}
check() {
    name=$1
    shift
    both "$name" 7471 "orrery-guest-verbs -d mlx5_0 $*" "orrery-guest-verbs -d mlx5_1 $* 127.0.0.1"
}

# counter NUMBER NAME: of mlx5_NUMBER's port; hw_counters are read anew after 12 ms.
counter() {
    sleep 0.05
    cat "/sys/class/infiniband/mlx5_$1/ports/1/hw_counters/$2" 2>/dev/null ||
        cat "/sys/class/infiniband/mlx5_$1/ports/1/counters/$2"
}
# of KIND: how many operations of the kind the data checker's client did.
of() { sed -n "s/^\([0-9]*\) x $1$/\1/p" /tmp/client.log; }

# objects: how many of programs' objects the drivers know, in all.
objects() {
    for kind in qp cq mr pd; do rdma resource show $kind; done | grep -vc 'comm \['
}

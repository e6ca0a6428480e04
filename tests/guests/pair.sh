# shellcheck shell=bash
# Two guests of one server, "left" and "right", each with one RNIC whose port is Ethernet: 10.7.0.1 and 10.7.0.2. Sourced
# after lib.sh.

left() { "$ORRERY" exec left -- "$@"; }
right() { "$ORRERY" exec right -- "$@"; }

# Brings the port of mlx5_0 up with address 10.7.0.$1; prints the index of its RoCE v2 GID.
# shellcheck disable=SC2016  # the guest's shell expands it
pair_address='
    net=$(ls /sys/class/infiniband/mlx5_0/device/net) && ip addr add 10.7.0.$1/24 dev $net && ip link set $net up || exit 1
    cd /sys/class/infiniband/mlx5_0/ports/1
    for try in $(seq 60); do
        for i in 0 1 2 3 4 5 6 7; do
            grep -q "RoCE v2" gid_attrs/types/$i 2>/dev/null && grep -q ffff:0a07:000$1 gids/$i && echo $i && exit
        done
        sleep 0.25
    done
    exit 1'

# start_pair NAME ARGUMENTS…: boots both and sets them up. Its process id is in PID; the GIDs are in LEFT_GID and RIGHT_GID.
# LEFT_KERNEL and RIGHT_KERNEL: their kernels, if the arguments name none for both.
# A configuration file among the arguments may say more, but names the guests left and right and their devices.
# shellcheck disable=SC2034  # the scripts that source this read them
start_pair() {
    local name=$1 side
    shift
    case " $* " in
    *' --config '*) ;;
    *)
        cat >"$WORK/pair.toml" <<TOML
[topology]
switches = 2
rnics_per_switch = 1
gpus_per_switch = 0
[[guest]]
name = "left"
devices = ["rnic0"]
kernel = "${LEFT_KERNEL:-}"
[[guest]]
name = "right"
devices = ["rnic1"]
kernel = "${RIGHT_KERNEL:-}"
TOML
        set -- --config "$WORK/pair.toml" "$@"
        ;;
    esac
    start_boot "$WORK/$name.log" --json --no-network "$@"
    for side in left right; do until_true 120 "$side's guest" "$ORRERY" exec $side -- true; done
    LEFT_GID=$(left sh -c "$pair_address" sh 1 2>"$WORK/$name-left.log") || fail "$name: the left guest's address"
    RIGHT_GID=$(right sh -c "$pair_address" sh 2 2>"$WORK/$name-right.log") || fail "$name: the right guest's address"
}

# stop_pair NAME: neither driver has complained; both end.
stop_pair() {
    local side
    for side in left right; do
        "$ORRERY" exec $side -- dmesg >"$WORK/$1-$side-dmesg.log"
        has "$WORK/$1-$side-dmesg.log" 'cut here|dump_cqe|mlx5.*(fail|timeout)' && fail "$1: the $side driver complained"
    done
    kill "$PID"
    wait "$PID" || true
}

# perftest_pair NAME ADDRESS PROGRAM…: server on mlx5_0 of the left guest, client on mlx5_0 of the right one, which meets it at
# ADDRESS; both statuses count, and what they say is in NAME-left.log and NAME-right.log. With GIDs set, on those. perftest
# times itself by the emulated CPU's cycle counter, and gives up if that ran unevenly: once more, then.
perftest_pair() {
    local name=$1 address=$2 try status server left_gid=() right_gid=()
    shift 2
    [ -z "${LEFT_GID:-}" ] || left_gid=(-x "$LEFT_GID") right_gid=(-x "$RIGHT_GID")
    for try in 1 2 3 4 5; do
        left "$@" -d mlx5_0 "${left_gid[@]}" >"$WORK/$name-left.log" 2>&1 &
        server=$!
        sleep 2
        status=0
        right "$@" -d mlx5_0 "${right_gid[@]}" "$address" >"$WORK/$name-right.log" 2>&1 || status=$?
        wait "$server" || status=$?
        [ "$status" -eq 0 ] && return
        grep -q "Can't produce a report" "$WORK/$name-left.log" "$WORK/$name-right.log" || break
    done
    fail "$name: status $status, try $try"
}

# applications_initrd KERNEL FILE: the initrd with the applications joined to it, in FILE. BOOT_KERNEL and BOOT_APPEND: what
# to boot it with.
# shellcheck disable=SC2034  # the scripts that source this read them
applications_initrd() {
    local cache=${ORRERY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/orrery} file
    BOOT_KERNEL=$cache/kernels/$1/vmlinuz
    BOOT_APPEND='console=ttyS0 panic=-1 no_timer_check'
    for file in "$BOOT_KERNEL" "$cache/images/$1/initrd" "$cache/images/applications/applications.cpio"; do
        [ -f "$file" ] || fail "$file isn't there; ./dev setup test fetches it"
    done
    cat "$cache/images/$1/initrd" "$cache/images/applications/applications.cpio" >"$2"
}

#!/bin/bash
# How long a guest takes to boot with all its devices, against the same QEMU without them: each from QEMU's
# start to its end, the guest's init running /bin/true and switching off. Prints a table; asserts nothing.
#   bench/guest_boot.sh [ROUNDS] [KERNEL]
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3}
kernel=${2:-7.3-cloud}
case $rounds in '' | *[!0-9]* | 0) rounds=3 ;; esac
orrery=${ORRERY:-build/release/cli/orrery}
[ -x "$orrery" ] || {
    echo "bench/guest_boot.sh: there is no program at $orrery; ./dev build makes it" >&2
    exit 1
}
work=$(mktemp -d)
chmod 700 "$work"
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; wait; rm -rf "$work"' EXIT

"$orrery" serve --directory "$work/server" --kernel "$kernel" --no-network --append orrery.run=/bin/true \
    >"$work/arguments" 2>"$work/server.log" &
server=$!
for _ in $(seq 100); do
    ! grep -q '^# serving' "$work/arguments" || break
    kill -0 "$server" 2>/dev/null || {
        cat "$work/server.log" >&2
        exit 1
    }
    sleep 0.1
done
# The command itself, without comments; and the same without the emulated functions.
grep -v '^#' "$work/arguments" | grep . >"$work/with.sh"
grep -v vfio-user-pci "$work/with.sh" | sed '$s/ \\$//' >"$work/without.sh"

milliseconds() {
    local begin end
    begin=$(date +%s%N)
    timeout 300 sh "$1" >"$work/qemu.log" 2>&1 || {
        cat "$work/qemu.log" >&2
        return 1
    }
    end=$(date +%s%N)
    echo $(((end - begin) / 1000000))
}
milliseconds "$work/with.sh" >/dev/null # caches warm
: >"$work/with"
: >"$work/without"
for _ in $(seq "$rounds"); do
    milliseconds "$work/without.sh" >>"$work/without"
    milliseconds "$work/with.sh" >>"$work/with"
done
for kind in without with; do
    sort -n "$work/$kind" | awk -v kind="$kind" '{v[NR]=$1} END {
        printf "%-8s devices: min %6d ms, median %6d ms, max %6d ms (%d boots)\n", kind, v[1], v[int((NR+1)/2)], v[NR], NR}'
done
awk -v a="$(sort -n "$work/with" | awk '{v[NR]=$1} END {print v[int((NR+1)/2)]}')" \
    -v b="$(sort -n "$work/without" | awk '{v[NR]=$1} END {print v[int((NR+1)/2)]}')" \
    'BEGIN {printf "ratio of the medians: %.2f\n", a / b}'

#!/bin/bash
# How long a guest takes to boot with all its devices, against the same QEMU without them, and against the same with a
# device of QEMU's own (virtio-rng) in each of their slots: what is the emulated server's, and what any device costs.
# From QEMU's start until its userland is up ("ready"), until the drivers of all its devices are loaded, and until it
# has run /bin/true and switched itself off. With --disk it is the Debian root disk: until systemd offers `login:`.
# Prints a table; asserts nothing.
#   bench/guest_boot.sh [--disk] [ROUNDS] [KERNEL]
set -euo pipefail
cd "$(dirname "$0")/.."
disk=
[ "${1:-}" != --disk ] || {
    disk=1
    shift
}
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

system=(--append orrery.run=/bin/true)
events=('orrery-guest: ready' 'orrery-guest: drivers loaded')
columns=('ready' 'drivers loaded' 'switched off')
[ -z "$disk" ] || {
    system=(--disk root)
    events=(' login:')
    columns=('login')
}
"$orrery" serve --directory "$work/server" --kernel "$kernel" --no-network "${system[@]}" \
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
# The command itself, without comments and with the console on stdout; and the same without the emulated functions.
grep -v '^#' "$work/arguments" | grep . |
    sed 's/-chardev socket,id=console,[^ ]*/-chardev stdio,id=console,signal=off/' >"$work/with.sh"
grep -v vfio-user-pci "$work/with.sh" | sed '$s/ \\$//' >"$work/without.sh"
sed 's/"driver":"vfio-user-pci",\(.*"addr":"0x0"\).*}/"driver":"virtio-rng-pci",\1}/' "$work/with.sh" >"$work/stock.sh"

# Prints the milliseconds to each event and, of a guest that switches itself off, to the end.
milliseconds() {
    local begin line i qemu out
    local -a times=()
    begin=$(date +%s%N)
    exec {out}< <(exec timeout 300 sh "$1" 2>&1 </dev/null)
    qemu=$!
    # `login:` ends without a newline: what is there is looked at every 20 ms.
    local text='' part
    while true; do
        part=''
        IFS= read -r -t 0.02 -u "$out" part && line=0 || line=$?
        text+=$part
        for i in "${!events[@]}"; do
            [[ $text != *"${events[i]}"* ]] || times[i]=${times[i]:-$(((${EPOCHREALTIME/./} - begin / 1000) / 1000))}
        done
        if [ "$line" -eq 0 ]; then
            echo "$text" >>"$work/console.log"
            text=''
        elif [ "$line" -le 128 ]; then
            break # the end of the output
        fi
        if [ -n "$disk" ] && [ "${#times[@]}" -gt 0 ]; then
            kill "$qemu"
            break
        fi
    done
    exec {out}<&-
    wait "$qemu" || true
    [ "${#times[@]}" -eq "${#events[@]}" ] || {
        cat "$work/console.log" >&2
        echo "bench/guest_boot.sh: the guest didn't come up" >&2
        return 1
    }
    [ -n "$disk" ] || times+=($(((${EPOCHREALTIME/./} - begin / 1000) / 1000)))
    echo "${times[@]}"
}
milliseconds "$work/with.sh" >/dev/null # caches warm
for _ in $(seq "$rounds"); do
    for kind in without stock with; do milliseconds "$work/$kind.sh" >>"$work/$kind"; done
done
# median KIND COLUMN
median() { awk -v c="$2" '{print $c}' "$work/$1" | sort -n | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }
echo "medians of $rounds boots, ms: none, stock devices, ours; ours to none, ours to stock"
column=0
for until in "${columns[@]}"; do
    column=$((column + 1))
    awk -v a="$(median without $column)" -v b="$(median stock $column)" -v c="$(median with $column)" -v u="$until" \
        'BEGIN {printf "%-16s %7d %7d %7d %6.2f %6.2f\n", u, a, b, c, c / a, c / b}'
done

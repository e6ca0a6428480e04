# shellcheck shell=bash
# What the set-up tests share. Sourced; the caller has `set -euo pipefail`.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tools/lib/common.sh
. "$ROOT/tools/lib/common.sh"

WORK=$(mktemp -d)
STARTED=()
# End what this test started, by its process id, and remove what it wrote.
cleanup() {
    local pid
    for pid in "${STARTED[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$WORK"
}
trap cleanup EXIT

fail() {
    printf 'FAILED: %s\n' "$*" >&2
    if [ -f "$WORK/console" ]; then
        printf 'the end of the console:\n' >&2
        tail -n 25 "$WORK/console" | tr -d '\r' | sed 's/^/  | /' >&2
    fi
    exit 1
}
pass() { printf 'ok: %s\n' "$*"; }

# until_line PATTERN SECONDS: wait for a line of the console.
until_line() {
    local tries=$(($2 * 5))
    while ! grep -qaE "$1" "$WORK/console" 2>/dev/null; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || fail "no line like '$1' on the console within $2 s"
        kill -0 "$QEMU" 2>/dev/null || {
            grep -qaE "$1" "$WORK/console" && return 0
            fail "QEMU ended before a line like '$1': $(cat "$WORK/qemu.err")"
        }
        sleep 0.2
    done
}

# start_guest ARG...: QEMU with a serial console in a file and the guest agent on a pair of pipes.
start_guest() {
    mkfifo "$WORK/agent.in" "$WORK/agent.out" 2>/dev/null || true
    "$ORRERY_CACHE/qemu/bin/qemu-system-x86_64" -L "$ORRERY_CACHE/qemu/share" \
        -M q35,memory-backend=mem -object memory-backend-memfd,id=mem,size=1G,share=on -m 1G \
        -accel tcg,thread=multi -cpu max -smp 2 -nodefaults -display none -no-reboot \
        -serial "file:$WORK/console" \
        -device virtio-serial-pci -chardev "pipe,id=agent,path=$WORK/agent" \
        -device virtserialport,chardev=agent,name=org.qemu.guest_agent.0 \
        "$@" >"$WORK/qemu.out" 2>"$WORK/qemu.err" &
    QEMU=$!
    STARTED+=("$QEMU")
    exec 7<>"$WORK/agent.in" 8<>"$WORK/agent.out"
}

# agent JSON: ask the guest agent, print its answer.
agent() {
    local answer
    printf '%s\n' "$1" >&7
    read -r -t 60 answer <&8 || fail "the guest agent didn't answer: $1"
    printf '%s\n' "$answer"
}

# agent_run PROGRAM ARG...: run it in the guest, print its standard output.
agent_run() {
    local program=$1 args='' arg pid answer tries=150
    shift
    for arg in "$@"; do args+="${args:+,}\"$arg\""; done
    answer=$(agent "{\"execute\":\"guest-exec\",\"arguments\":{\"path\":\"$program\",\"arg\":[$args],\"capture-output\":true}}")
    pid=$(sed -nE 's/.*"pid": *([0-9]+).*/\1/p' <<<"$answer")
    [ -n "$pid" ] || fail "the guest agent can't run $program: $answer"
    while [ "$tries" -gt 0 ]; do
        answer=$(agent "{\"execute\":\"guest-exec-status\",\"arguments\":{\"pid\":$pid}}")
        case $answer in *'"exited": true'*) break ;; esac
        sleep 0.2
        tries=$((tries - 1))
    done
    sed -nE 's/.*"out-data": *"([^"]*)".*/\1/p' <<<"$answer" | base64 -d
}

# A free port of this machine, for QEMU's user network.
free_port() {
    local port
    for port in $(shuf -i 20000-40000 -n 20); do
        if ! (: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            echo "$port"
            return
        fi
    done
    fail "no free port"
}

make_key() { ssh-keygen -q -t ed25519 -N '' -f "$WORK/key"; }
guest_ssh() { # PORT COMMAND...
    local port=$1
    shift
    ssh -q -i "$WORK/key" -p "$port" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
        -o ConnectTimeout=60 -o BatchMode=yes root@127.0.0.1 "$@"
}

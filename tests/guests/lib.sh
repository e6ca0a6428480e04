# shellcheck shell=bash
# What the tests with real guests, and others that run the program in the background, share. Sourced; the caller has `set -euo pipefail`.
# ORRERY names the program under test.

: "${ORRERY:?name the orrery program under test}"
WORK=$(mktemp -d)
chmod 700 "$WORK"
# Runs of these tests don't mix with the user's own.
export XDG_RUNTIME_DIR=$WORK/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
STARTED=()

# Ends what this test started, by its process id, and removes what it wrote.
cleanup() {
    local pid
    for pid in "${STARTED[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$WORK"
}
trap cleanup EXIT

fail() {
    printf 'FAILED: %s\n' "$*" >&2
    # The log written last comes first: it is the one that tells, and a report that is cut short is cut at its end.
    local log
    while read -r log; do
        printf 'the end of %s:\n' "${log##*/}" >&2
        tail -n 40 "$log" | tr -d '\r' | cut -c 1-400 | sed 's/^/  | /' >&2
    done < <(find "$WORK" -maxdepth 1 -name '*.log' -printf '%T@ %p\n' | sort -rn | cut -d ' ' -f 2-)
    exit 1
}
pass() { printf 'ok: %s\n' "$*"; }

# until_true SECONDS WHAT COMMAND…: tries until it succeeds.
until_true() {
    local tries=$(($1 * 5)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || fail "$what: not in time"
        sleep 0.2
    done
}

# has FILE PATTERN [COUNT]: the file has at least COUNT (1) lines like the pattern.
has() { [ "$(grep -caE -- "$2" "$1" 2>/dev/null || true)" -ge "${3:-1}" ]; }

# boot LOG ARGUMENTS…: a guest to its end; its status is kept in STATUS.
# shellcheck disable=SC2034  # STATUS: the scripts that source this read it
boot() {
    local log=$1
    shift
    STATUS=0
    "$ORRERY" boot "$@" </dev/null >"$log" 2>&1 || STATUS=$?
}

# start_boot LOG ARGUMENTS…: a guest in the background; its process id is in PID.
start_boot() {
    local log=$1
    shift
    "$ORRERY" boot "$@" </dev/null >"$log" 2>&1 &
    PID=$!
    STARTED+=("$PID")
}

# start_server DIRECTORY LOG ARGUMENTS…: a server in the background; its process id is in SERVER.
start_server() {
    local directory=$1 log=$2
    shift 2
    rm -f "$directory/server.json"
    "$ORRERY" serve --json --directory "$directory" "$@" >"$log" 2>&1 &
    SERVER=$!
    STARTED+=("$SERVER")
    until_true 20 "the server in $directory" test -f "$directory/server.json"
}

# process id of the guest's QEMU, from `orrery boot --json`
qemu_pid() { sed -n 's/.*"pid":\([0-9]*\).*/\1/p' "$1" | head -n 1; }

#!/bin/bash
# What can go wrong on a machine gives a message that says what, where and what to do, and a status
# other than 0; nothing half made is left that looks ready.
set -euo pipefail
# shellcheck source=tests/setup/lib.sh
. "$(dirname "$0")/lib.sh"
export ORRERY_RETRY_SECONDS=0

# expect STATUS-OTHER-THAN-0 AND WORDS: expect WORDS COMMAND...
expect() {
    local words=$1 out
    shift
    if out=$("$@" 2>&1); then fail "no failure of: $*"; fi
    grep -qF "$words" <<<"$out" || fail "'$words' is not in: $out"
    pass "$words"
}

cd "$ROOT"
expect 'no such command: ./dev nonsense' ./dev nonsense
expect 'no such preset: nonsense' ./dev build --preset nonsense
expect 'unknown option: --nonsense' ./dev test --nonsense
expect 'no such purpose or option: nonsense' tools/setup nonsense
expect 'no such guest kernel: 5.0-cloud' tools/setup kernel:5.0-cloud
for command in setup build demo test bench fmt lint docs clean; do
    out=$(./dev "$command" --help)
    [[ "$out" == "usage: ./dev $command"* ]] || fail "./dev $command --help says no usage: $out"
done
pass "every command has --help"

touch "$WORK/file"
ORRERY_CACHE="$WORK/file/cache" expect "can't be written" tools/setup --no-packages kernel:7.3-cloud

# A full disk, where we may make one.
if [ "$(id -u)" = 0 ] && unshare --mount true 2>/dev/null; then
    mkdir "$WORK/small"
    # shellcheck disable=SC2016 # the inner shell's
    expect "not enough room for package lists" unshare --mount bash -c '
        mount -t tmpfs -o size=20m small "$1" && ORRERY_CACHE="$1" exec tools/setup --no-packages kernel:7.3-cloud' - "$WORK/small"
fi

# No network: what was being fetched, and how to go on.
mkdir "$WORK/cache"
ORRERY_CACHE="$WORK/cache" http_proxy=http://127.0.0.1:9 https_proxy=http://127.0.0.1:9 \
    expect 'the package lists of Debian (trixie trixie-backports)' tools/setup --no-packages kernel:7.3-cloud
[ ! -e "$WORK/cache/kernels" ] || fail "a set-up that failed left a kernel"

# A second set-up waits for the first, and says for whom.
exec 5>>"$WORK/cache/.lock"
flock 5
echo 4711 >"$WORK/cache/.lock.owner"
ORRERY_CACHE="$WORK/cache" http_proxy=http://127.0.0.1:9 https_proxy=http://127.0.0.1:9 \
    timeout 20 tools/setup --no-packages kernel:7.3-cloud >"$WORK/second" 2>&1 5>&- &
second=$!
STARTED+=("$second")
for _ in $(seq 50); do
    grep -q 'another set-up (process 4711) is at work' "$WORK/second" 2>/dev/null && break
    sleep 0.1
done
grep -q 'another set-up (process 4711) is at work' "$WORK/second" || fail "no message about the first set-up: $(cat "$WORK/second")"
kill -0 "$second" || fail "the second set-up didn't wait"
flock -u 5
wait "$second" && fail "the second set-up didn't go on (it has no network, so it fails)"
grep -q 'package lists' "$WORK/second" || fail "the second set-up didn't go on: $(cat "$WORK/second")"
pass "a second set-up waits for the first"

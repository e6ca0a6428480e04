#!/bin/bash
# The program as shells and scripts use it: what is printed where, with which exit status, when streams are closed, full
# or go away, when words are misspelt, and when outputs would overwrite inputs.
set -euo pipefail
: "${ORRERY:?name the orrery program under test}"
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
cd "$WORK"
export XDG_RUNTIME_DIR=$WORK

failures=0
# check NAME STATUS PATTERN COMMAND…: its exit status, and a line like the pattern on stderr or stdout.
check() {
    local name=$1 status=$2 pattern=$3 found=0
    shift 3
    timeout 60 bash -c "$*" >out 2>&1 </dev/null || found=$?
    if [ "$found" -ne "$status" ] || ! grep -qE -- "$pattern" out; then
        printf 'FAILED: %s: status %s (want %s), wanted a line like: %s\n' "$name" "$found" "$status" "$pattern" >&2
        sed 's/^/  | /' out >&2
        failures=$((failures + 1))
    fi
}
o=$ORRERY

# Streams that can't be written.
for command in 'topo' 'config defaults' 'config show --json' '--help' '--version' 'boot --help'; do
    check "full stdout: $command" 1 "No space left" "$o $command >/dev/full"
    check "closed stdout: $command" 1 "Bad file descriptor" "$o $command >&-"
done
for stream in '2>/dev/full' '2>&-'; do
    check "stderr $stream" 0 '^1$' "$o config check nothing.toml $stream; echo \$?"
done
check "a reader that goes" 0 '^141 0$' "{ $o config show --json; for i in \$(seq 200); do $o config defaults || exit; done; } 2>err | true; \
    s=\${PIPESTATUS[0]}; echo \$s \$(wc -c <err)"
check "no input, no output, no errors" 0 '^1$' "$o config check nothing.toml <&- >&- 2>&-; echo \$?"
# A file that is opened while descriptor 1 is free must not become stdout.
check "a file isn't stdout" 0 '^<svg|^<\?xml' "$o topo --format svg -o drawing.svg >&- || true; head -c 5 drawing.svg; echo"

# Words.
check "unknown command" 2 "there is no command 'boo'" "$o boo"
check "unknown command, near" 2 'did you mean "boot"' "$o boo"
check "unknown command below" 2 'did you mean "check"' "$o config chek"
check "no command" 2 'orrery has demo, boot' "$o"
check "no command below" 2 'orrery trace has summary, show, export' "$o trace"
check "unknown option" 2 'see: orrery topo --help' "$o topo --bogus"
check "options of a guest's command" 2 'orrery exec guest0 -- ls -l' "$o exec guest0 uname -r"
# CLI11 2.3 and 2.4 word it differently.
check "a limit below zero" 2 'not in range .?0 (to|-) 9223372036854775807' "$o trace show x --limit -1"
for words in "config check ''" "boot --config ''" "boot --config=" "serve --directory ''" "replay ''" "exec '' -- true"; do
    check "empty: $words" 1 'empty' "$o $words"
done
check "two formats" 2 'excludes' "$o topo --json --format svg"

# Outputs that would overwrite their input.
$o config defaults >server.toml
cp server.toml kept.toml
check "topology over its configuration" 1 'is the file that is read' "$o topo server.toml -o ./server.toml"
printf 'ORRTRACE' >a.trace
check "export over its trace" 1 'is the file that is read' "$o trace export a.trace -o ./a.trace"
printf 'ORRRECRD' >a.rec
ln a.rec b.rec
check "replay's trace over its recording" 1 'is the file that is read' "$o replay a.rec --trace b.rec"
check "a recording is no trace" 1 'it is a recording: see .orrery replay' "head -c 64 /dev/zero >>a.rec; $o trace summary a.rec"
cmp -s server.toml kept.toml || { echo 'FAILED: the configuration was overwritten' >&2; failures=$((failures + 1)); }
[ "$(head -c 8 a.trace)$(head -c 8 b.rec)" = ORRTRACEORRRECRD ] || { echo 'FAILED: an input is gone' >&2; failures=$((failures + 1)); }

# A server leaves nothing, however it ends; a second one in its directory disturbs nothing.
check "no directory" 1 "can't be made" "$o serve --json --directory /dev/null/x"
start_server() {
    rm -f served.out # of the one before
    $o serve --json --directory "$WORK/served" >served.out 2>&1 &
    server=$!
    for _ in $(seq 300); do [ -s served.out ] && return; sleep 0.1; done
    echo 'FAILED: no server' >&2
    exit 1
}
for signal in INT TERM HUP; do
    start_server
    check "a second server" 1 'in use by a live server' "$o serve --json --directory served"
    [ -f served/server.json ] || { echo 'FAILED: the second server unpublished the first' >&2; failures=$((failures + 1)); }
    kill -"$signal" "$server"
    status=0
    wait "$server" || status=$?
    left=$(find served orrery-* -mindepth 1 ! -name .lock | tr '\n' ' ')
    if [ "$status" -ne 0 ] || [ -n "$left" ]; then
        printf 'FAILED: SIG%s: status %s, left: %s\n' "$signal" "$status" "$left" >&2
        failures=$((failures + 1))
    fi
done
start_server
kill -KILL "$server"
wait "$server" 2>/dev/null || true
start_server
kill -INT "$server"
wait "$server" || { echo 'FAILED: no server after one that was killed' >&2; failures=$((failures + 1)); }

[ "$failures" -eq 0 ] || exit 1
echo "ok: streams, words, overwriting, servers"

#!/bin/bash
# A set-up that has nothing to do takes under a second, and needs no network.
set -euo pipefail
# shellcheck source=tests/setup/lib.sh
. "$(dirname "$0")/lib.sh"
begun=$(date +%s%N)
# A proxy where nothing listens: any fetch would fail.
out=$(http_proxy=http://127.0.0.1:9 https_proxy=http://127.0.0.1:9 "$ROOT/tools/setup" test 2>&1) || fail "$out"
took=$((($(date +%s%N) - begun) / 1000000))
grep -q 'is there' <<<"$out" || fail "set-up did something: $out"
# A loaded machine gets twice the promise.
[ "$took" -lt 2000 ] || fail "it took $took ms"
pass "nothing to do, in $took ms"

#!/bin/bash
# Files that changed under us are found and mended: an unpacked file by --verify, a package in the
# download folder by its hash in Debian's list. Needs the network.
set -euo pipefail
# shellcheck source=tests/setup/lib.sh
. "$(dirname "$0")/lib.sh"
real=$ORRERY_CACHE
export ORRERY_CACHE="$WORK/cache"
kernel=7.3-cloud
release=$(cat "$real/kernels/$kernel/release")
mkdir -p "$ORRERY_CACHE/debs" "$ORRERY_CACHE/kernels"
cp -r "$real/hosttools" "$ORRERY_CACHE/"
cp -r "$real/kernels/$kernel" "$ORRERY_CACHE/kernels/"
while read -r _ file; do cp "$real/debs/$file" "$ORRERY_CACHE/debs/"; done <"$real/kernels/$kernel/packages.sha256"
cd "$ROOT"

out=$(tools/setup --verify "kernel:$kernel" 2>&1) || fail "$out"
grep -q 'is there' <<<"$out" || fail "an untouched cache was made anew: $out"
pass "an untouched cache passes"

module=$(find "$ORRERY_CACHE/kernels/$kernel/modules" -name 'virtio_net.ko*')
printf 'x' | dd of="$module" bs=1 seek=1000 conv=notrunc status=none
file=$(grep -E 'linux-(modules|image)' "$ORRERY_CACHE/kernels/$kernel/packages.sha256" | awk '{print $2}' | tail -n 1)
printf 'x' | dd of="$ORRERY_CACHE/debs/$file" bs=1 seek=1000 conv=notrunc status=none
out=$(tools/setup --verify "kernel:$kernel" 2>&1) || fail "$out"
grep -q "virtio_net.ko.*FAILED" <<<"$out" || fail "the changed module isn't named: $out"
grep -q '1 to fetch' <<<"$out" || fail "the changed package wasn't fetched again: $out"
cmp "$module" "$(find "$real/kernels/$kernel/modules/lib/modules/$release" -name 'virtio_net.ko*')" || fail "the module wasn't mended"
pass "a changed module and a changed package are found and mended"

# Killed half way: the next one goes on.
rm -rf "$ORRERY_CACHE/kernels"
tools/setup "kernel:$kernel" >"$WORK/killed" 2>&1 &
victim=$!
for _ in $(seq 300); do
    compgen -G "$ORRERY_CACHE/.tmp.*" >/dev/null && break
    sleep 0.05
done
kill -9 "$victim"
wait "$victim" 2>/dev/null || true
[ ! -e "$ORRERY_CACHE/kernels/$kernel" ] || fail "the killed set-up finished"
out=$(tools/setup "kernel:$kernel" 2>&1) || fail "$out"
[ -s "$ORRERY_CACHE/kernels/$kernel/vmlinuz" ] || fail "no kernel after the second try: $out"
compgen -G "$ORRERY_CACHE/.tmp.*" >/dev/null && fail "what the killed set-up left is still there"
pass "a killed set-up is gone on with"

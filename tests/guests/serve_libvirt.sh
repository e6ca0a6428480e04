#!/bin/bash
# What `orrery serve --format libvirt` prints is one document that libvirt's own schema takes.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

serve() {
    rm -f "$WORK/serve.log" # of the one before
    "$ORRERY" serve --directory "$WORK/server" --format libvirt "$@" </dev/null >"$WORK/domain.xml" 2>"$WORK/serve.log" &
    STARTED+=($!)
    until_true 20 "the server" grep -q '^serving 12 functions' "$WORK/serve.log"
    kill $!
    wait $! || true
    virt-xml-validate "$WORK/domain.xml" domain >"$WORK/validate.log" 2>&1 || fail "libvirt's schema says no: $*"
}
ssh-keygen -q -t ed25519 -N '' -f "$WORK/key"
serve
serve --firmware ovmf --cpus 4 --disk root --share "$WORK" --ssh --ssh-key "$WORK/key.pub" --append quiet --qemu -d --qemu int
serve --no-network --share "$WORK" --share-read-only
pass "three domains that libvirt's schema takes"

#!/bin/bash
# The same packages give the same images, byte by byte: made a second time in an empty cache.
set -euo pipefail
# shellcheck source=tests/setup/lib.sh
. "$(dirname "$0")/lib.sh"
real=$ORRERY_CACHE
# In the cache's own filesystem, not /tmp: a gigabyte is needed.
export ORRERY_CACHE="$real/.again.$$"
trap 'rm -rf --one-file-system "$ORRERY_CACHE"; cleanup' EXIT
mkdir "$ORRERY_CACHE"
cp -al "$real/debs" "$ORRERY_CACHE/debs"
cp -a "$real/plans" "$ORRERY_CACHE/plans"
"$ROOT/tools/setup" initrd:6.1-cloud initrd:6.12-cloud initrd:7.3-cloud disk
for image in 6.1-cloud/initrd 6.12-cloud/initrd 7.3-cloud/initrd disk/root.qcow2; do
    cmp "$real/images/$image" "$ORRERY_CACHE/images/$image" || fail "$image came out differently the second time"
    pass "$image is the same: $(sha256sum <"$real/images/$image" | cut -c1-16)"
done

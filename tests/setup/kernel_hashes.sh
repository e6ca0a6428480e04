#!/bin/bash
# kernel_hashes.sh KERNEL: the proof that guests run Debian's own kernel and modules. The package's
# hash is the one in Debian's signed list; every file that guests get is byte for byte the package's.
set -euo pipefail
# shellcheck source=tests/setup/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tools/lib/apt.sh
. "$ROOT/tools/lib/apt.sh"
# shellcheck source=tools/lib/hosttools.sh
. "$ROOT/tools/lib/hosttools.sh"
# shellcheck source=tools/lib/kernels.sh
. "$ROOT/tools/lib/kernels.sh"
name=${1:?usage: kernel_hashes.sh KERNEL}
pool=$(kernel_pool "$name")
dir="$ORRERY_CACHE/kernels/$name"
release=$(cat "$dir/release")

# 1. The lists are signed by Debian's archive keys, and state the packages' hashes.
keyring=$(debian_keyring)
for list in "$(pool_dir "$pool")"/state/lists/*_InRelease; do
    gpgv --quiet --keyring "$keyring" "$list" >/dev/null 2>"$WORK/gpgv" || fail "$list: $(cat "$WORK/gpgv")"
done
pass "the package lists carry Debian's signature"
while read -r sum file; do
    package=${file%%_*}
    listed=$(pool_apt "$pool" apt-cache show "$package" | sed -n 's/^SHA256: //p')
    if [ -z "$listed" ]; then
        # Debian has moved on since the kernel was fetched; it was compared with the list of that day.
        pass "$package is no longer listed (compared when it was fetched)"
        continue
    fi
    grep -qx "$sum" <<<"$listed" || fail "$package: $sum is not what Debian's list states: $listed"
    pass "$package: its hash is in Debian's list"
done <"$dir/packages.sha256"

# 2. The packages in the cache have these hashes; unpacked anew, they give the files in use.
(cd "$DEBS" && sha256sum --quiet -c "$dir/packages.sha256") || fail "a package in $DEBS has changed"
mkdir "$WORK/root"
while read -r _ file; do dpkg-deb -x "$DEBS/$file" "$WORK/root"; done <"$dir/packages.sha256"
if [ ! -d "$WORK/root/usr/lib/modules" ]; then
    mkdir -p "$WORK/root/usr/lib"
    mv "$WORK/root/lib/modules" "$WORK/root/usr/lib/modules"
fi
fresh="$WORK/root/usr/lib/modules/$release"
for candidate in "$fresh/vmlinuz" "$WORK/root/boot/vmlinuz-$release"; do
    if [ -f "$candidate" ]; then cmp "$candidate" "$dir/vmlinuz" || fail "vmlinuz isn't the package's"; fi
done
pass "vmlinuz is the package's"
count=0
while read -r file; do
    cmp -s "$fresh/$file" "$dir/modules/lib/modules/$release/$file" || fail "$file isn't the package's"
    count=$((count + 1))
done < <(cd "$fresh" && find kernel -type f | sort)
[ "$count" -gt 500 ] || fail "the package has only $count modules"
[ "$(find "$dir/modules/lib/modules/$release/kernel" -type f | wc -l)" = "$count" ] || fail "there are files beside the package's $count modules"
pass "all $count modules are the package's, and there are no others"

# 3. So are the modules in the initrd.
mkdir "$WORK/initrd"
(cd "$WORK/initrd" && tail -c "+$(($(stat -c %s "$ORRERY_CACHE/images/base/base.cpio") + 1))" "$ORRERY_CACHE/images/$name/initrd" |
    hosttool cpio --quiet --extract --make-directories --no-absolute-filenames)
count=0
while read -r file; do
    cmp -s "$fresh/$file" "$WORK/initrd/usr/lib/modules/$release/$file" || fail "the initrd's $file isn't the package's"
    count=$((count + 1))
done < <(cd "$WORK/initrd/usr/lib/modules/$release" && find kernel -type f)
[ "$count" -gt 20 ] || fail "the initrd has only $count modules"
pass "the initrd's $count modules are the package's"

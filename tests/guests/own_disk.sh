#!/bin/bash
# A disk image that brings its own kernel and boot entry, loaded by UEFI firmware from the disk alone: no
# --kernel, no --initrd. All 12 endpoints are there.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

cache=${ORRERY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/orrery}
kernel=$cache/kernels/7.3-cloud/vmlinuz
initrd=$(find "$cache/images/7.3-cloud" -name initrd | head -n 1)
for file in "$kernel" "$initrd"; do
    [ -f "$file" ] || fail "no kernel or initrd in $cache; ./dev setup test fetches them"
done

# An EFI system partition without a partition table; the firmware's shell runs startup.nsh.
size=$(($(stat -c %s "$kernel") + $(stat -Lc %s "$initrd") + (16 << 20)))
mformat -C -F -i "$WORK/disk.raw" -T $((size / 512)) ::
printf 'vmlinuz.efi initrd=\\initrd.img console=ttyS0 panic=-1 no_timer_check intel_iommu=on iommu=pt quiet\r\n' >"$WORK/startup.nsh"
mcopy -i "$WORK/disk.raw" "$kernel" ::vmlinuz.efi
mcopy -i "$WORK/disk.raw" "$initrd" ::initrd.img
mcopy -i "$WORK/disk.raw" "$WORK/startup.nsh" ::startup.nsh
"$cache/qemu/bin/qemu-img" convert -f raw -O qcow2 "$WORK/disk.raw" "$WORK/disk.qcow2"
rm "$WORK/disk.raw"

start_boot "$WORK/boot.log" --json --disk "$WORK/disk.qcow2" --firmware ovmf --no-network
until_true 240 "the guest's agent" "$ORRERY" exec guest0 -- true
"$ORRERY" exec guest0 -- cat /proc/cmdline >"$WORK/cmdline.log"
has "$WORK/cmdline.log" 'initrd=.initrd.img console=ttyS0' || fail "the kernel was not started by the disk's own entry"
"$ORRERY" exec guest0 -- lspci -n >"$WORK/lspci.log"
[ "$(grep -cE ' (1234:0e10|15b3:101e)' "$WORK/lspci.log")" -eq 12 ] || fail "not 12 endpoints"
kill "$PID"
until_true 60 "the guest's end" sh -c "! kill -0 $PID"
pass "a disk image of one's own boots by UEFI with 12 endpoints"

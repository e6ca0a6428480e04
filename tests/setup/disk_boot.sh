#!/bin/bash
# disk_boot.sh KERNEL [ovmf]: the root disk comes up with systemd to a login prompt on the serial
# console, ssh lets us in with our key, the guest agent is active, the host folder is shared, nothing
# failed, and the image itself isn't written. With `ovmf`, UEFI firmware loads the kernel.
set -euo pipefail
# shellcheck source=tests/setup/lib.sh
. "$(dirname "$0")/lib.sh"
kernel=${1:?usage: disk_boot.sh KERNEL [ovmf]}
release=$(cat "$ORRERY_CACHE/kernels/$kernel/release")
image="$ORRERY_CACHE/images/disk/root.qcow2"
before=$(sha256sum <"$image")
firmware=()
if [ "${2:-}" = ovmf ]; then
    cp "$ORRERY_CACHE/qemu/ovmf/OVMF_VARS_4M.fd" "$WORK/vars.fd"
    firmware=(-drive "if=pflash,unit=0,format=raw,readonly=on,file=$ORRERY_CACHE/qemu/ovmf/OVMF_CODE_4M.fd"
        -drive "if=pflash,unit=1,format=raw,file=$WORK/vars.fd")
fi
"$ORRERY_CACHE/qemu/bin/qemu-img" create -q -f qcow2 -b "$image" -F qcow2 "$WORK/overlay.qcow2"
mkdir "$WORK/shared"
echo 'from the host' >"$WORK/shared/hello"
"$ORRERY_CACHE/qemu/bin/virtiofsd" --socket-path="$WORK/fs" --shared-dir="$WORK/shared" --sandbox=none >"$WORK/virtiofsd.log" 2>&1 &
STARTED+=($!)
make_key
port=$(free_port)
begun=$(date +%s%N)
start_guest "${firmware[@]}" -kernel "$ORRERY_CACHE/kernels/$kernel/vmlinuz" -initrd "$ORRERY_CACHE/images/$kernel/initrd" \
    -append "console=ttyS0 panic=-1 orrery.root=/dev/vda" \
    -drive "file=$WORK/overlay.qcow2,if=virtio,format=qcow2" \
    -netdev "user,id=net,hostfwd=tcp:127.0.0.1:$port-:22" -device virtio-net-pci,netdev=net,romfile= \
    -chardev "socket,id=fs,path=$WORK/fs" -device vhost-user-fs-pci,chardev=fs,tag=orrery \
    -fw_cfg "name=opt/org.orrery/ssh-key,file=$WORK/key.pub"
until_line 'orrery-guest: ready' 240
pass "systemd is up $((($(date +%s%N) - begun) / 1000000)) ms after QEMU's start"
until_line 'login:' 120
pass "login: on the serial console"
out=$(guest_ssh "$port" 'uname -r; cat /mnt/share/hello; systemctl is-active qemu-guest-agent; systemctl --failed --no-legend; findmnt -no SOURCE,FSTYPE /; modprobe -a mlx5_ib vfio-pci && lsmod | grep -c ^mlx5_ib')
grep -qx "$release" <<<"$out" || fail "not the kernel that was asked for: $out"
grep -q 'from the host' <<<"$out" || fail "no shared folder: $out"
grep -qx active <<<"$out" || fail "the guest agent isn't active: $out"
grep -q failed <<<"$out" && fail "units failed: $out"
grep -q '^/dev/vda *ext4' <<<"$out" || fail "the root filesystem isn't the disk: $out"
grep -qx 1 <<<"$out" || fail "the kernel's modules don't load: $out"
pass "ssh with our key, the guest agent, the shared folder, the kernel's own modules"
[ "$(agent_run /usr/bin/cat /etc/debian_version)" != '' ] || fail "the guest agent doesn't run commands"
pass "the guest agent runs a command"
kill "$QEMU"
wait "$QEMU" 2>/dev/null || true
[ "$(sha256sum <"$image")" = "$before" ] || fail "$image was written"
pass "the image is as it was"

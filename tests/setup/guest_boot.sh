#!/bin/bash
# guest_boot.sh KERNEL: the initrd of that kernel comes up on plain QEMU; the guest agent runs a
# command, ssh lets us in with our key, a host folder is shared both ways, orrery.run's exit status
# reaches the console.
set -euo pipefail
# shellcheck source=tests/setup/lib.sh
. "$(dirname "$0")/lib.sh"
kernel=${1:?usage: guest_boot.sh KERNEL}
release=$(cat "$ORRERY_CACHE/kernels/$kernel/release")

mkdir "$WORK/shared"
echo 'from the host' >"$WORK/shared/hello"
"$ORRERY_CACHE/qemu/bin/virtiofsd" --socket-path="$WORK/fs" --shared-dir="$WORK/shared" --sandbox=none \
    >"$WORK/virtiofsd.log" 2>&1 &
STARTED+=($!)
for _ in $(seq 50); do
    [ -S "$WORK/fs" ] && break
    sleep 0.1
done
make_key
port=$(free_port)

boot=("-kernel" "$ORRERY_CACHE/kernels/$kernel/vmlinuz" -initrd "$ORRERY_CACHE/images/$kernel/initrd")
begun=$(date +%s%N)
start_guest "${boot[@]}" -append "console=ttyS0 panic=-1 orrery.ssh=1" \
    -netdev "user,id=net,hostfwd=tcp:127.0.0.1:$port-:22" -device virtio-net-pci,netdev=net,romfile= \
    -chardev "socket,id=fs,path=$WORK/fs" -device vhost-user-fs-pci,chardev=fs,tag=orrery \
    -fw_cfg "name=opt/org.orrery/ssh-key,file=$WORK/key.pub"
until_line 'orrery-guest: ready' 240
pass "$kernel is ready $((($(date +%s%N) - begun) / 1000000)) ms after QEMU's start"

out=$(agent_run /usr/bin/uname -r)
[ "$out" = "$release" ] || fail "uname -r by the guest agent: '$out' instead of '$release'"
pass "the guest agent runs a command"

out=$(guest_ssh "$port" 'cat /mnt/share/hello; echo from the guest >/mnt/share/answer; lspci | wc -l; ibv_devices; ip -br addr')
grep -q 'from the host' <<<"$out" || fail "the shared folder isn't readable by ssh: $out"
pass "ssh with our key"
grep -q 'from the guest' "$WORK/shared/answer" || fail "what the guest wrote to the shared folder isn't there"
pass "host folder shared both ways"

# The guest's copies of Debian's modules, against the hashes of the package's files.
out=$(guest_ssh "$port" 'cd /usr/lib/modules/*/kernel && find . -name "*.ko*" | sort | xargs sha256sum')
count=0
while read -r sum file; do
    grep -qF "$sum  modules/lib/modules/$release/kernel/${file#./}" "$ORRERY_CACHE/kernels/$kernel/files.sha256" ||
        fail "the guest's module $file isn't the package's"
    count=$((count + 1))
done <<<"$out"
[ "$count" -gt 20 ] || fail "only $count modules in the guest"
pass "$count modules in the guest are byte for byte the package's"
out=$(guest_ssh "$port" 'modprobe -a mlx5_ib vfio-pci vfio_iommu_type1 rdma_ucm vhost_net uio_pci_generic && lsmod')
for module in mlx5_ib mlx5_core vfio_pci vfio_iommu_type1 rdma_ucm ib_uverbs uio_pci_generic; do
    grep -q "^$module " <<<"$out" || fail "module $module didn't load"
done
pass "the drivers for RNICs and for vfio load"
kill "$QEMU"
wait "$QEMU" 2>/dev/null || true

rm -f "$WORK/console"
start_guest "${boot[@]}" -append 'console=ttyS0 panic=-1 orrery.run=/usr/bin/test -- a = b'
until_line 'orrery-guest: exit 1' 150
for _ in $(seq 50); do
    kill -0 "$QEMU" 2>/dev/null || break
    sleep 0.2
done
kill -0 "$QEMU" 2>/dev/null && fail "the guest didn't power off after orrery.run"
pass "orrery.run ends with the program's status and powers off"

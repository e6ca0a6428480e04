#!/bin/bash
# mlx5_gpudirect.sh KERNEL: GPU memory of a stock guest, exported by vfio-pci as a dma-buf and registered with
# ibv_reg_dmabuf_mr, as both ends of RDMA operations, each GPU below its RNIC's switch. The guest's CPU compares every
# byte; one side's GPU is reset now and then, which takes the dma-buf back and gives it again (page faults). The trace
# shows the way: peer to peer in the switch with rnic.virtualization = "vstellar", through the root complex with "hyv".
set -euo pipefail
. "$(dirname "$0")/lib.sh"

kernel=$1
# shellcheck disable=SC2016  # the guest's shell expands it
script='
    modprobe mlx5_ib && modprobe ib_uverbs || exit 1;
    for i in 1 2 3 4 5 6 7 8 9; do [ -e /sys/class/infiniband/mlx5_1 ] && break; sleep 1; done;
    gpu() { ls -d /sys/class/infiniband/$1/device/../../*/*/class | xargs grep -l 0x0302 | sed s,/class$,, | sed s,.*/,,; };
    orrery-guest-verbs -d mlx5_0 -G $(gpu mlx5_0) & server=$!; sleep 2;
    orrery-guest-verbs -d mlx5_1 -G $(gpu mlx5_1) -R -n 12 -o 16 -s 65536 127.0.0.1 && wait $server && echo done:gpudirect;
    sleep 1'
# rows MODE LINK: address and AT of what RNIC 0 wrote and read across a link.
rows() { "$ORRERY" trace show --type MWr,MRd --function rnic0 --link "$2" "$WORK/$1.trace" |
    sed -nE 's/.* AT ([01]+b) (0x[0-9a-f]{8})[0-9a-f]{4} .*/\2 \1/p'; }
for mode in vstellar hyv; do
    boot "$WORK/$mode.log" --set rnic.personality=mlx5 --set rnic.virtualization=$mode --set topology.switches=2 \
        --set topology.rnics_per_switch=1 --set topology.gpus_per_switch=1 --set "trace.file=$WORK/$mode.trace" \
        --kernel "$kernel" --append "loglevel=5 orrery.run=/bin/sh -- -c \"${script//$'\n'/ }\""
    [ "$STATUS" -eq 0 ] || fail "$mode: status $STATUS"
    has "$WORK/$mode.log" 'done:gpudirect' || fail "$mode"
    has "$WORK/$mode.log" 'cut here|dump_cqe' && fail "$mode: the driver complained"
    rows $mode gpu0 | sort | uniq -c >"$WORK/$mode.gpu"
    rows $mode switch0 | sort >"$WORK/$mode.root"
    [ "$(wc -l <"$WORK/$mode.gpu")" -gt 0 ] || fail "$mode: RNIC 0 never reached GPU 0"
done
# Addresses to 64 KiB that are the GPU's, on the switch's link to the root complex.
crossed() { awk 'NR == FNR { gpu[$2] = 1; next } $1 in gpu' "$WORK/$1.gpu" "$WORK/$1.root" | wc -l; }
grep -vq ' 10b$' "$WORK/vstellar.gpu" && fail "vstellar: GPU memory without AT = 10b"
[ "$(crossed vstellar)" -eq 0 ] || fail "vstellar: $(crossed vstellar) requests to the GPU crossed the root complex"
grep -vq ' 00b$' "$WORK/hyv.gpu" && fail "hyv: GPU memory with an AT other than 00b"
direct=$(awk '{ n += $1 } END { print n }' "$WORK/vstellar.gpu")
redirected=$(awk '{ n += $1 } END { print n }' "$WORK/hyv.gpu")
# Up to the root complex and down again: each request is there twice.
[ "$(crossed hyv)" -eq $((2 * redirected)) ] || fail "hyv: $(crossed hyv) crossings for $redirected requests"
pass "$kernel: GPU memory by RDMA; $direct requests direct (vstellar), $redirected through the root complex (hyv)"

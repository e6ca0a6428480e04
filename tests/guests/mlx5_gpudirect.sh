#!/bin/bash
# mlx5_gpudirect.sh KERNEL: RDMA between the GPUs of two stock guests, from GPU to switch to RNIC, over the wire, and from
# RNIC to switch to GPU. Each guest has an RNIC and a GPU below one switch; the GPU's memory is exported by vfio-pci as a
# dma-buf and registered with ibv_reg_dmabuf_mr, as both ends of random operations. The guests' CPUs compare every byte;
# one side's GPU is reset now and then, which takes the dma-buf back and gives it again (page faults). The trace shows the
# way: peer to peer in the switch with rnic.virtualization = "vstellar", through the root complex with "hyv".
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/pair.sh"

kernel=$1
# The GPU at the switch of mlx5_0.
# shellcheck disable=SC2016  # the guest's shell expands it
gpu='gpu=$(ls -d /sys/class/infiniband/mlx5_0/device/../../*/*/class | xargs grep -l 0x0302) && gpu=${gpu%/class} && echo ${gpu##*/}'
cat >"$WORK/two.toml" <<'TOML'
[topology]
switches = 2
rnics_per_switch = 1
gpus_per_switch = 1
[[guest]]
name = "left"
devices = ["rnic0", "gpu0"]
[[guest]]
name = "right"
devices = ["rnic1", "gpu1"]
TOML
# rows MODE RNIC LINK: address (to 64 KiB) and AT of what an RNIC wrote and read, where it came down a link.
rows() { "$ORRERY" trace show --type MWr,MRd --function "$2" --link "$3" "$WORK/$1.trace" |
    sed -nE "s/.* link_$3\.down .* AT ([01]+b) (0x[0-9a-f]+)[0-9a-f]{4} .*/\2 \1/p"; }
# crossed MODE N: requests of RNIC N that came from the root complex, to addresses that are GPU N's.
crossed() { awk 'NR == FNR { gpu[$2] = 1; next } $1 in gpu' "$WORK/$1.gpu$2" "$WORK/$1.root$2" | wc -l; }
requests() { awk '{ n += $1 } END { print n + 0 }' "$WORK/$1.gpu$2"; }

for mode in vstellar hyv; do
    start_pair $mode --kernel "$kernel" --memory 512 --set rnic.virtualization=$mode --config "$WORK/two.toml" \
        --set "trace.file=$WORK/$mode.trace"
    left_gpu=$(left sh -c "$gpu") || fail "$mode: the left guest has no GPU"
    right_gpu=$(right sh -c "$gpu") || fail "$mode: the right guest has no GPU"
    left orrery-guest-verbs -d mlx5_0 -g "$LEFT_GID" -G "$left_gpu" >"$WORK/$mode-server.log" 2>&1 &
    server=$!
    sleep 2
    right orrery-guest-verbs -d mlx5_0 -g "$RIGHT_GID" -G "$right_gpu" -R -n 12 -o 16 -s 65536 10.7.0.1 \
        >"$WORK/$mode-client.log" 2>&1 || fail "$mode: the client"
    wait "$server" || fail "$mode: the server"
    stop_pair $mode
    for i in 0 1; do
        rows $mode rnic$i gpu$i | sort | uniq -c >"$WORK/$mode.gpu$i"
        rows $mode rnic$i switch$i | sort >"$WORK/$mode.root$i"
        [ "$(requests $mode $i)" -gt 0 ] || fail "$mode: RNIC $i never reached GPU $i"
    done
done
for i in 0 1; do
    grep -vq ' 10b$' "$WORK/vstellar.gpu$i" && fail "vstellar: GPU $i's memory without AT = 10b"
    [ "$(crossed vstellar $i)" -eq 0 ] || fail "vstellar: $(crossed vstellar $i) requests to GPU $i crossed the root complex"
    grep -vq ' 00b$' "$WORK/hyv.gpu$i" && fail "hyv: GPU $i's memory with an AT other than 00b"
    [ "$(crossed hyv $i)" -eq "$(requests hyv $i)" ] ||
        fail "hyv: $(crossed hyv $i) crossings for $(requests hyv $i) requests to GPU $i"
done
pass "$kernel: RDMA between GPUs of two guests; $(requests vstellar 0) + $(requests vstellar 1) requests direct (vstellar)," \
    "$(requests hyv 0) + $(requests hyv 1) through the root complex (hyv)"

#!/bin/bash
# mlx5_ucx.sh KERNEL: UCX between two stock guests, as applications use RDMA: ucx_perftest over reliable connections and
# over datagrams, by verbs and by the accelerated mlx5 transports; small and large messages, one-sided and by tag.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/pair.sh"

kernel=$1
applications_initrd "$kernel" "$WORK/initrd"
start_pair ucx --kernel "$BOOT_KERNEL" --initrd "$WORK/initrd" --memory 1024 --append "$BOOT_APPEND"
count=0
# run TRANSPORT TEST SIZE ITERATIONS
run() {
    local server environment=(env "UCX_TLS=$1" UCX_NET_DEVICES=mlx5_0:1 "UCX_IB_GID_INDEX=$LEFT_GID")
    left "${environment[@]}" timeout 100 ucx_perftest -P 0 -t "$2" -s "$3" -n "$4" -w 10 >"$WORK/server.log" 2>&1 &
    server=$!
    sleep 2
    environment[3]=UCX_IB_GID_INDEX=$RIGHT_GID
    right "${environment[@]}" timeout 100 ucx_perftest -P 0 10.7.0.1 -t "$2" -s "$3" -n "$4" -w 10 >"$WORK/client.log" 2>&1 ||
        fail "$1, $2 of $3 bytes: the client"
    wait "$server" || fail "$1, $2 of $3 bytes: the server"
    has "$WORK/client.log" "^Final: +$4 " || fail "$1, $2 of $3 bytes: no result"
    count=$((count + 1))
}
for transport in rc_v ud_v rc_x ud_x; do
    run $transport tag_lat 8 500
    run $transport tag_bw 65536 200
done
run rc_v ucp_put_bw 1048576 50
run rc_v ucp_get 65536 100
run rc_x ucp_put_lat 8 500
run rc_v ucp_fadd 8 200
stop_pair ucx
pass "$kernel: $count runs of ucx_perftest over rc and ud, by verbs and by mlx5's own transports"

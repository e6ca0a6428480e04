#!/bin/bash
# The example plug-in models in slots of the server, chosen by configuration, used by a real guest: in place of a
# GPU, in a free slot of a switch, and at a root port. Functional and timed; a recorded run replays to its hash.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# Where the examples were built; ctest's fixtures do that.
: "${ORRERY_EXAMPLES:=$(dirname "$ORRERY")/../tests/plugins/examples}"
crc32c=$ORRERY_EXAMPLES/systemc_device/crc32c_device.so
verilog=$ORRERY_EXAMPLES/verilog_dma/verilog_dma.so
[ -f "$crc32c" ] || fail "$crc32c isn't built: ctest -R plugins.build builds it"

cat >"$WORK/plugins.toml" <<TOML
[[device]]
slot = "switch0.slot3"
name = "crc0"
model = "$crc32c"
params = { byte_ps = 50 }

# Found by ORRERY_PLUGIN_PATH; its own parameters have their defaults.
[[device]]
slot = "socket1.slot2"
name = "crc1"
model = "crc32c_device.so"
TOML
engines=0
if [ -f "$verilog" ]; then
    engines=1
    cat >>"$WORK/plugins.toml" <<TOML

[[device]]
slot = "switch0.slot2"
name = "dma0"
model = "$verilog"
params = { cycle_ps = 2000 }
TOML
fi
export ORRERY_PLUGIN_PATH=$ORRERY_EXAMPLES/systemc_device

# use NAME PROGRAM-ARGUMENTS SETTING…: a guest uses them all.
use() {
    local log=$WORK/$1.log arguments=$2 sets=() setting
    shift 2
    for setting in "$@"; do sets+=(--set "$setting"); done
    boot "$log" --config "$WORK/plugins.toml" "${sets[@]}" --kernel 7.3-cloud \
        --append "quiet orrery.run=/usr/bin/orrery-guest-demo -- $arguments"
    [ "$STATUS" -eq 0 ] || fail "status $STATUS"
    has "$log" '^plugins crc32c[01]-host: pass, 16 checksums equal the CPU.s, each with one interrupt' 2 ||
        fail "not 2 accelerators that sum host memory"
    has "$log" '^plugins crc32c[01]-errors: pass' 2 || fail "an accelerator's errors"
    has "$log" '^plugins crc32c[01]-registers: pass, .*NUMA node 0' || fail "crc0 is not at socket 0"
    has "$log" '^plugins crc32c[01]-registers: pass, .*NUMA node 1' || fail "crc1 is not at socket 1"
    [ "$engines" -eq 0 ] && return
    has "$log" '^plugins verilog-dma0-host: pass, 12 copies compared by the CPU, each with one interrupt' ||
        fail "the DMA engine"
    has "$log" '^plugins verilog-dma0-errors: pass' || fail "the DMA engine's errors"
}

# And the rest of the server: GPUs as peers, and all that is there as ever but for the GPU whose place the engine has.
use_with_peers() {
    local log=$WORK/$1.log
    use "$1" "topology interrupt plugins" "${@:2}"
    has "$log" '^plugins crc32c[01]-peer: pass, summed memory of gpu0' 2 || fail "an accelerator and a GPU's memory"
    has "$log" '^plugins crc32c[01]-peer: .*below the same switch' || fail "crc0 and gpu0 are not below one switch"
    has "$log" '^topology .*: pass, (gpu|rnic)[0-9] below' $((12 - engines)) || fail "GPUs or RNICs are missing"
    has "$log" '^interrupt gpu[0-7]: pass' $((8 - engines)) || fail "GPUs don't work beside them"
    [ "$engines" -eq 0 ] && return
    has "$log" '^plugins verilog-dma0-peer: pass, copied to and from memory of gpu0, below the same switch' ||
        fail "the DMA engine and a GPU's memory"
}

use_with_peers functional time.mode=functional
use_with_peers timed time.mode=timed
# While recording, peers can't be reached (docs/getting-started.md): no GPU memory is looked at.
use recorded "--window 4K plugins" time.mode=timed "record.file=$WORK/run.rec"
hash=$(sed -n 's/.*trace hash \([0-9a-f]*\).*/\1/p' "$WORK/recorded.log")
[ -n "$hash" ] || fail "no trace hash"
"$ORRERY" replay "$WORK/run.rec" >"$WORK/replay.log" 2>&1 || fail "the replay"
has "$WORK/replay.log" "trace hash $hash" || fail "another hash than $hash"
pass "2 CRC32C accelerators and $engines DMA engine in Verilog, functional and timed; replayed to $hash"

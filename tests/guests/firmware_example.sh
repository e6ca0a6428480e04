#!/bin/bash
# firmware_example.sh: the worked example of a firmware team's own ELF on its own register map: its tests pass, and find
# the faults that are injected.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

example=$(cd "$(dirname "$0")/../../examples/firmware" && pwd)
{ cmake -S "$example" -B "$WORK/build" && cmake --build "$WORK/build"; } >"$WORK/build.log" 2>&1 || fail "it isn't built"
elf=$WORK/build/acme_test.elf
# bare STATUS NAME ARGUMENTS…
bare() {
    local want=$1 name=$2 status=0
    shift 2
    "$ORRERY" fw test --elf "$elf" --map "$example/acme.toml" "$@" >"$WORK/$name.log" 2>&1 || status=$?
    [ "$status" = "$want" ] || fail "$name: status $status"
}
bare 0 clean --junit "$WORK/clean.xml"
for test in id scratch alarm uptime dma_round_trip dma_where_nothing_is; do
    has "$WORK/clean.log" "^PASS $test" || fail "$test"
done
has "$WORK/clean.log" '^registers: 12 of 12 accessed; 0 accesses refused' || fail "the coverage of registers"
has "$WORK/clean.xml" '<testsuite name="acme_test" tests="6" failures="0" errors="0">' || fail "the JUnit file"
# The line that counts failures runs in no good run, the one that counts tests in each; lcov reads what is written.
line() { grep -n "$1" "$example/acme_test.c" | head -n 1 | cut -d: -f1; }
failing=$(line '++failures;')
bare 0 covered --coverage "$WORK/covered.info"
bare 1 covered_failure --coverage "$WORK/failure.info" --fault 'read ID 0 1'
has "$WORK/covered.info" "^SF:.*examples/firmware/acme_test\\.c\$" || fail "no source file in the coverage"
has "$WORK/covered.info" "^DA:$failing,0\$" || fail "line $failing ran, or isn't known"
has "$WORK/failure.info" "^DA:$failing,1\$" || fail "line $failing didn't run"
has "$WORK/covered.info" '^FNDA:1,acme_main$' || fail "no function in the coverage"
[ "$(grep -c '^DA:.*,1$' "$WORK/covered.info")" -ge 25 ] || fail "fewer lines ran than the six tests have"
bare 1 uncovered --coverage "$WORK/none/covered.info"
has "$WORK/uncovered.log" 'none/covered.info can.t be written' || fail "a tracefile that can't be written"
riscv64-linux-gnu-objcopy --strip-debug "$elf" "$WORK/stripped.elf"
elf=$WORK/stripped.elf bare 1 stripped --coverage "$WORK/stripped.info"
has "$WORK/stripped.log" 'stripped.elf says nothing of its source lines' || fail "an ELF file without line table"
bare 1 register --fault 'read ID 0 1' --junit "$WORK/register.xml"
has "$WORK/register.log" '^FAIL id: wrong' || fail "a register fault isn't found"
has "$WORK/register.log" '^5 of 6 tests passed' || fail "a register fault does more than it should"
has "$WORK/register.xml" 'tests="6" failures="1"' || fail "the JUnit file of a failure"
bare 1 write --fault 'write SCRATCH 0'
has "$WORK/write.log" '^FAIL scratch' || fail "a fault of a write isn't found"
bare 1 dma --fault 'dma 0 1'
has "$WORK/dma.log" "^FAIL dma_round_trip: the write didn't end well" || fail "a DMA fault isn't found"
bare 1 unknown --fault 'read NONE 0'
has "$WORK/unknown.log" 'there is no register NONE' || fail "a fault of a register that isn't there"
# The same program without its map finds other registers; a trace names each access.
"$ORRERY" --log-level trace fw test --elf "$elf" --map "$example/acme.toml" >"$WORK/trace.log" 2>&1 || fail "with a trace"
has "$WORK/trace.log" 'reads ID 0x41434d45' || fail "no trace of a read"
has "$WORK/trace.log" 'reads DMA_STATE 0x2: STATE=0x2' || fail "no trace of a field"
STATUS=0
"$ORRERY" fw test --elf "$elf" --bare >"$WORK/bare.log" 2>&1 || STATUS=$?
[ "$STATUS" = 1 ] || fail "on Orrery's own registers: status $STATUS"
has "$WORK/bare.log" '^FAIL id' || fail "on Orrery's own registers"
pass "the example's six tests pass on its own register map, and find register and DMA faults"

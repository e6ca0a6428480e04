#!/bin/bash
# boot_kernel.sh KERNEL: a stock Debian kernel finds all 12 endpoints, each alone in its IOMMU group, and
# uses a GPU's engine and interrupts.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

boot "$WORK/boot.log" --kernel "$1" --append "quiet orrery.run=/usr/bin/orrery-guest-demo -- --size 64K topology memory interrupt"
[ "$STATUS" -eq 0 ] || fail "status $STATUS"
has "$WORK/boot.log" '^topology .*: pass, (gpu|rnic)[0-9] below' 12 || fail "not 12 endpoints"
has "$WORK/boot.log" '^memory gpu[0-7]: pass' 8 || fail "not 8 GPU memories"
has "$WORK/boot.log" '^interrupt gpu[0-7]: pass' 8 || fail "not 8 GPUs with interrupts"
# Alone: the endpoint and the port above it, two members in every group.
[ "$(grep -a 'ORRERY-JSON' "$WORK/boot.log" | grep -acE '"group_members":\["[0-9a-f:.]+","[0-9a-f:.]+"\]')" -eq 12 ] ||
    fail "an endpoint shares its IOMMU group"
pass "$1: 12 endpoints, $(grep -a 'Debian kernel' "$WORK/boot.log" | tr -d '\r')"

# shellcheck shell=bash
# QEMU for RISC-V, which runs the RNIC's firmware built for riscv64: the machine's own if it is 10.1 or newer, else
# Debian's package of trixie-backports, unpacked into the cache like the other QEMU (lib/qemu.sh). Nothing is installed.
#
# Makes $ORRERY_CACHE/qemu-riscv: bin/qemu-system-riscv64, root/ (the unpacked packages).

QEMU_RISCV_PACKAGES=(qemu-system-riscv)

qemu_riscv_key() { recipe_key tools/lib/qemu_riscv.sh tools/lib/qemu.sh; }

own_qemu_riscv() {
    local program
    program=$(command -v qemu-system-riscv64) || return 1
    qemu_is_new_enough "$program" || return 1
    "$program" -M none -device vfio-user-pci,help >/dev/null 2>&1 || return 1
    printf '%s\n' "$program"
}

setup_qemu_riscv() {
    local key tmp plan own version
    key=$(qemu_riscv_key)
    artifact_ready qemu-riscv "$key" && [ -x "$ORRERY_CACHE/qemu-riscv/bin/qemu-system-riscv64" ] && return 0
    if own=$(own_qemu_riscv); then
        step "QEMU for RISC-V: using this machine's $own"
        tmp=$(begin_artifact qemu-riscv)
        mkdir -p "$tmp/bin"
        ln -s "$own" "$tmp/bin/qemu-system-riscv64"
        finish_artifact qemu-riscv "$tmp" "$key"
        return 0
    fi
    step "QEMU for RISC-V: Debian's package from trixie-backports (this machine has none of version 10.1 or newer)"
    plan=$(plan_file qemu-riscv)
    plan_and_fetch closure trixie qemu-riscv "QEMU for RISC-V and its libraries" "${QEMU_RISCV_PACKAGES[@]}"
    need_space "$ORRERY_CACHE" 400 "QEMU for RISC-V"
    tmp=$(begin_artifact qemu-riscv)
    mkdir -p "$tmp/root" "$tmp/bin"
    # shellcheck disable=SC2046  # file names of packages have no blanks
    unpack_debs "$tmp/root" $(cut -d' ' -f1 "$plan")
    cp "$plan" "$tmp/packages.sha256"
    make_wrapper "$tmp/bin/qemu-system-riscv64" usr/bin/qemu-system-riscv64
    # Bare metal needs no firmware image of QEMU's, and nobody needs the 32-bit program.
    rm -rf "$tmp"/root/{etc,var} "$tmp"/root/usr/share/* "$tmp/root/usr/bin/qemu-system-riscv32"
    version=$("$tmp/bin/qemu-system-riscv64" --version | head -n 1) || die \
        "the unpacked QEMU for RISC-V doesn't start on this machine" "the lines above say why"
    "$tmp/bin/qemu-system-riscv64" -M none -device vfio-user-pci,help >/dev/null || die \
        "$version has no vfio-user-pci device, by which firmware reaches the RNIC's registers"
    finish_artifact qemu-riscv "$tmp" "$key"
    say "    $version, $(du -sm "$ORRERY_CACHE/qemu-riscv" | cut -f1) MB in $ORRERY_CACHE/qemu-riscv"
}

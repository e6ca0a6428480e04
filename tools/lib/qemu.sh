# shellcheck shell=bash
# QEMU 10.1 or newer: the machine's own if it is new enough, else Debian's package of
# trixie-backports, unpacked into the cache with its own loader and libraries. Nothing is installed.
#
# Makes $ORRERY_CACHE/qemu: bin/ (qemu-system-x86_64, qemu-img, virtiofsd), share/ (firmware, for
# -L), ovmf/ (OVMF_CODE_4M.fd, OVMF_VARS_4M.fd), root/ (the unpacked packages).

QEMU_PACKAGES=(qemu-system-x86 qemu-system-data qemu-utils seabios ovmf virtiofsd)

qemu_key() { recipe_key tools/lib/qemu.sh; }

# qemu_is_new_enough PROGRAM
qemu_is_new_enough() {
    local version
    version=$("$1" --version 2>/dev/null | sed -nE '1s/.*version ([0-9]+)\.([0-9]+).*/\1 \2/p') || return 1
    [ -n "$version" ] || return 1
    # shellcheck disable=SC2086  # two words
    set -- $version
    [ "$1" -gt 10 ] || { [ "$1" -eq 10 ] && [ "$2" -ge 1 ]; }
}

# The machine's QEMU serves only together with all that guests need beside it.
own_qemu() {
    local program
    program=$(command -v qemu-system-x86_64) || return 1
    qemu_is_new_enough "$program" || return 1
    command -v qemu-img >/dev/null || return 1
    [ -f /usr/share/OVMF/OVMF_CODE_4M.fd ] && [ -d /usr/share/seabios ] && [ -x /usr/libexec/virtiofsd ] || return 1
    "$program" -device vfio-user-pci,help >/dev/null 2>&1 || return 1
    printf '%s\n' "$program"
}

# make_wrapper FILE PROGRAM: run an unpacked program with the loader and libraries it came with.
make_wrapper() {
    cat >"$1" <<'W' && sed -i "s|@PROGRAM@|$2|" "$1" && chmod 755 "$1"
#!/bin/sh
# Runs Debian's unpacked program with its own loader and libraries: this machine's may be older.
self=$0
[ -L "$self" ] && self=$(readlink -f "$self")
case $self in */*) top=${self%/*}/.. ;; *) top=.. ;; esac
lib=$top/root/usr/lib/x86_64-linux-gnu
export QEMU_MODULE_DIR="$lib/qemu"
exec "$top/root/usr/lib64/ld-linux-x86-64.so.2" --argv0 "$0" \
    --library-path "$lib" "$top/root/@PROGRAM@" "$@"
W
}

setup_qemu() {
    local key tmp plan own version f
    key=$(qemu_key)
    artifact_ready qemu "$key" && [ -x "$ORRERY_CACHE/qemu/bin/qemu-system-x86_64" ] && return 0
    if own=$(own_qemu); then
        step "QEMU: using this machine's $own"
        tmp=$(begin_artifact qemu)
        mkdir -p "$tmp/bin" "$tmp/ovmf"
        ln -s "$own" "$tmp/bin/qemu-system-x86_64"
        ln -s "$(command -v qemu-img)" "$tmp/bin/qemu-img"
        ln -s /usr/libexec/virtiofsd "$tmp/bin/virtiofsd"
        ln -s /usr/share/qemu "$tmp/share"
        for f in CODE VARS; do ln -s "/usr/share/OVMF/OVMF_${f}_4M.fd" "$tmp/ovmf/OVMF_${f}_4M.fd"; done
        finish_artifact qemu "$tmp" "$key"
        return 0
    fi
    step "QEMU: Debian's package from trixie-backports (this machine has no complete QEMU of version 10.1 or newer)"
    plan=$(plan_file qemu)
    plan_and_fetch closure trixie qemu "QEMU and its libraries" "${QEMU_PACKAGES[@]}"
    need_space "$ORRERY_CACHE" 400 "QEMU"
    tmp=$(begin_artifact qemu)
    mkdir -p "$tmp/root" "$tmp/bin" "$tmp/share" "$tmp/ovmf"
    # shellcheck disable=SC2046  # file names of packages have no blanks
    unpack_debs "$tmp/root" $(cut -d' ' -f1 "$plan")
    cp "$plan" "$tmp/packages.sha256"
    make_wrapper "$tmp/bin/qemu-system-x86_64" usr/bin/qemu-system-x86_64
    make_wrapper "$tmp/bin/qemu-img" usr/bin/qemu-img
    make_wrapper "$tmp/bin/virtiofsd" usr/libexec/virtiofsd
    # Firmware lies in several packages, joined by links to absolute paths: copy it into one folder.
    for f in "$tmp"/root/usr/share/qemu/* "$tmp"/root/usr/share/seabios/* "$tmp"/root/usr/lib/ipxe/qemu/*; do
        if [ -f "$f" ] && [ ! -L "$f" ]; then cp "$f" "$tmp/share/"; fi
    done
    [ -d "$tmp/root/usr/share/qemu/keymaps" ] && cp -r "$tmp/root/usr/share/qemu/keymaps" "$tmp/share/"
    cp "$tmp/root/usr/share/OVMF/OVMF_CODE_4M.fd" "$tmp/root/usr/share/OVMF/OVMF_VARS_4M.fd" "$tmp/ovmf/"
    rm -rf "$tmp"/root/usr/share/{doc,man,locale,i18n,applications,icons,lintian,bash-completion} \
        "$tmp"/root/{etc,var} "$tmp"/root/usr/share/{OVMF,ovmf,qemu-efi*,seabios} "$tmp/root/usr/share/qemu/"*.fd
    version=$("$tmp/bin/qemu-system-x86_64" --version | head -n 1) || die \
        "the unpacked QEMU doesn't start on this machine" "the lines above say why"
    "$tmp/bin/qemu-system-x86_64" -L "$tmp/share" -device vfio-user-pci,help >/dev/null || die \
        "$version has no vfio-user-pci device, which guests are attached by"
    finish_artifact qemu "$tmp" "$key"
    say "    $version, $(du -sm "$ORRERY_CACHE/qemu" | cut -f1) MB in $ORRERY_CACHE/qemu"
}

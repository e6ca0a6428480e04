# shellcheck shell=bash
# The few programs that make guest images (cpio, depmod, mke2fs), from Debian trixie on every
# machine: images must come out the same on Debian 12 and 13, and nothing needs installing.

HOSTTOOL_PACKAGES=(cpio kmod e2fsprogs libarchive13t64 zstd)

hosttools_key() { recipe_key tools/lib/hosttools.sh; }

setup_hosttools() {
    local key tmp plan
    key=$(hosttools_key)
    artifact_ready hosttools "$key" && return 0
    step "image tools: Debian's cpio, kmod and e2fsprogs"
    plan=$(plan_file hosttools)
    plan_and_fetch closure trixie hosttools "the image tools" "${HOSTTOOL_PACKAGES[@]}"
    tmp=$(begin_artifact hosttools)
    # shellcheck disable=SC2046  # file names of packages have no blanks
    unpack_debs "$tmp" $(cut -d' ' -f1 "$plan")
    rm -rf "${tmp:?}/usr/share" "${tmp:?}/var"
    cp "$plan" "$tmp/packages.sha256"
    finish_artifact hosttools "$tmp" "$key"
}

# hosttool PROGRAM ARGS...: run one of them, with its own loader and libraries.
hosttool() {
    local top="$ORRERY_CACHE/hosttools" program
    program=$(find "$top/usr/bin" "$top/usr/sbin" -name "$1" | head -n 1)
    [ -n "$program" ] || die "no program '$1' among the image tools in $top"
    # depmod is kmod under another name: the name that it was called by decides.
    local lib="$top/usr/lib/x86_64-linux-gnu" name=$1
    shift
    "$top/usr/lib64/ld-linux-x86-64.so.2" --argv0 "$name" --library-path "$lib" "$program" "$@"
}

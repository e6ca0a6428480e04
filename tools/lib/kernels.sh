# shellcheck shell=bash
# Guest kernels: Debian's cloud kernels as they are in the packages. Makes
# $ORRERY_CACHE/kernels/<name>/: vmlinuz, config, release, modules/lib/modules/<release>/,
# packages.sha256 (each .deb with the hash that Debian's signed list states) and files.sha256 (every
# file that came out of them; depmod's index files are ours and not in it).

KERNELS=(6.1-cloud 6.12-cloud 7.3-cloud)

kernel_pool() {
    case $1 in
    6.1-cloud) echo bookworm ;;
    6.12-cloud | 7.3-cloud) echo trixie ;;
    *) die "no such guest kernel: $1 (one of: ${KERNELS[*]})" ;;
    esac
}

kernel_key() { printf '%s %s\n' "$1" "$(recipe_key tools/lib/kernels.sh)"; }

# The newest release of a kernel series that Debian offers now.
# shellcheck disable=SC2016
newest_release() {
    local pool=$1 series=$2
    pool_apt "$pool" apt-cache search --names-only "^linux-image-${series//./\\.}\\..*-cloud-amd64\$" |
        sed -E 's/^linux-image-([^ ]+) .*/\1/' | sort -V | tail -n 1
}

setup_kernel() {
    local name=$1 pool series release key tmp plan package packages root from file
    key=$(kernel_key "$name")
    artifact_ready "kernels/$name" "$key" && return 0
    pool=$(kernel_pool "$name")
    setup_hosttools
    step "guest kernel $name: Debian's package"
    plan=$(plan_file "kernel-$name")
    if ! plan_in_cache "kernel-$name" "$name"; then
        pool_open "$pool"
        series=${name%-cloud}
        release=$(newest_release "$pool" "$series")
        [ -n "$release" ] || die "Debian ($(pool_suites "$pool")) offers no linux-image-$series.*-cloud-amd64 at present" \
            "the mirror that apt uses here may be out of date: check with apt-cache policy linux-image-cloud-amd64" \
            "or boot a kernel of your own with: orrery boot --kernel FILE --initrd FILE"
        # Since 7.3 the image package is a shell around these.
        packages=()
        for package in image base binary modules; do
            package=linux-$package-$release
            if [ -n "$(pool_apt "$pool" apt-cache search --names-only "^${package//[.+]/\\&}\$")" ]; then packages+=("$package"); fi
        done
        # A kernel depends on what makes an initrd; the guest's is ours, so take the packages alone.
        pool_plan_alone "$pool" "${packages[@]}" >"$plan"
        pool_fetch alone "$pool" "guest kernel $name" "$plan" "${packages[@]}"
        plan_is_for "kernel-$name" "$name"
    fi
    release=$(sed -nE 's/^linux-image-([^_]+)_.*/\1/p' "$plan")
    need_space "$ORRERY_CACHE" 400 "guest kernel $name"
    tmp=$(begin_artifact "kernels/$name")
    root="$tmp/root"
    # shellcheck disable=SC2046  # file names of packages have no blanks
    unpack_debs "$root" $(cut -d' ' -f1 "$plan")
    mkdir -p "$tmp/modules/lib/modules"
    from="$root/usr/lib/modules/$release"
    [ -d "$from/kernel" ] || die "the package of $release has no /lib/modules/$release/kernel"
    for file in vmlinuz config; do
        if [ -f "$from/$file" ]; then mv "$from/$file" "$tmp/$file"; else mv "$root/boot/$file-$release" "$tmp/$file"; fi
    done
    rm -f "$from/System.map" "$from/build" "$from/source"
    mv "$from" "$tmp/modules/lib/modules/$release"
    rm -rf "$root"
    printf '%s\n' "$release" >"$tmp/release"
    awk '{print $3 "  " $1}' "$plan" >"$tmp/packages.sha256"
    # Before depmod adds its index: these are the package's own files.
    (cd "$tmp" && find vmlinuz config modules -type f -print0 | sort -z | xargs -0 sha256sum >files.sha256)
    hosttool depmod -b "$tmp/modules" "$release" || explain_failure "depmod for $release"
    finish_artifact "kernels/$name" "$tmp" "$key"
    say "    $release, $(du -sm "$ORRERY_CACHE/kernels/$name" | cut -f1) MB in $ORRERY_CACHE/kernels/$name"
}

# shellcheck shell=bash
# images/applications/applications.cpio: programs that use RDMA, to be appended to a guest's initrd.

APPLICATIONS_RECIPE=(tools/lib/applications.sh guests/applications/packages.txt)

applications_key() { recipe_key "${APPLICATIONS_RECIPE[@]}"; }

setup_applications() {
    local key tmp plan root packages
    key=$(applications_key)
    artifact_ready images/applications "$key" && return 0
    setup_hosttools
    step "guest applications: Debian packages"
    mapfile -t packages < <(list_of "$ORRERY_ROOT/guests/applications/packages.txt")
    plan=$(plan_file applications)
    plan_and_fetch alone trixie applications "guest applications" "${packages[@]}"
    need_space "$ORRERY_CACHE" 200 "guest applications"
    tmp=$(begin_artifact images/applications)
    root="$tmp/root"
    # shellcheck disable=SC2046  # file names of packages have no blanks
    unpack_debs "$root" $(cut -d' ' -f1 "$plan")
    awk '{print $3 "  " $1}' "$plan" >"$tmp/packages.sha256"
    rm -rf "${root:?}/usr/share" "$root"/usr/lib/x86_64-linux-gnu/ucx/*rocm*
    # The initrd has these links already.
    rm -f "$root"/{bin,sbin,lib,lib64}
    pack_cpio "$root" >"$tmp/applications.cpio" || explain_failure "packing the guest applications"
    rm -rf "$root"
    finish_artifact images/applications "$tmp" "$key"
    say "    $(size_of "$ORRERY_CACHE/images/applications/applications.cpio")"
}

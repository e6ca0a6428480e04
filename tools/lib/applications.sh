# shellcheck shell=bash
# images/applications/applications.cpio: programs that use RDMA, to be appended to a guest's initrd. What checks MPI is ours,
# built against the guests' own OpenMPI: an older C library's programs run on a newer one.

APPLICATIONS_RECIPE=(tools/lib/applications.sh guests/applications/packages.txt guests/applications/mpi_check.c)

applications_key() { recipe_key "${APPLICATIONS_RECIPE[@]}"; }

setup_applications() {
    local key tmp plan root libraries packages
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
    libraries=$root/usr/lib/x86_64-linux-gnu
    cc -std=gnu11 -O2 -Wall -Wextra -Werror -isystem "$libraries/openmpi/include" \
        "$ORRERY_ROOT/guests/applications/mpi_check.c" -o "$root/usr/bin/mpi_check" \
        -L"$libraries" -l:libmpi.so.40 -Wl,--allow-shlib-undefined ||
        die "guests/applications/mpi_check.c doesn't compile against the guests' OpenMPI" "see the compiler's messages above"
    # The texts of OpenMPI's messages are kept.
    mv "$root"/usr/share/openmpi "$root"/usr/share/prte "$tmp/"
    rm -rf "${root:?}/usr/share" "$libraries"/ucx/*rocm* "$libraries"/openmpi/include "$libraries"/*java* \
        "$libraries"/*usempi* "$libraries"/*mpifh*
    mkdir "$root/usr/share"
    mv "$tmp"/openmpi "$tmp"/prte "$root/usr/share/"
    # The initrd has these links already.
    rm -f "$root"/{bin,sbin,lib,lib64}
    pack_cpio "$root" >"$tmp/applications.cpio" || explain_failure "packing the guest applications"
    rm -rf "$root"
    finish_artifact images/applications "$tmp" "$key"
    say "    $(size_of "$ORRERY_CACHE/images/applications/applications.cpio")"
}

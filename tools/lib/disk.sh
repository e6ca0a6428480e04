# shellcheck shell=bash
# The root disk: a Debian trixie with systemd, installed by mmdebstrap from packages that the private
# apt state has verified, as one ext4 filesystem in a qcow2 image: images/disk/root.qcow2.
#
# The same packages give the same bytes: mmdebstrap and mke2fs take every time stamp from
# SOURCE_DATE_EPOCH, and the filesystem's ids are fixed.

DISK_RECIPE=(tools/lib/disk.sh guests/disk/customize guests/disk/packages.txt)
DISK_SIZE=2G
DISK_UUID=5b0c5a5e-6f72-4265-8e72-790000000001
DISK_EPOCH=1735689600

disk_key() {
    local files
    mapfile -t files < <(cd "$ORRERY_ROOT" && find guests/disk/files -type f | sort)
    recipe_key "${DISK_RECIPE[@]}" "${files[@]}"
}

# A folder that apt can install from: links to the verified packages, and their index.
local_repository() { # DIR PLAN
    local dir=$1 plan=$2 file size sha
    mkdir -p "$dir"
    while read -r file size sha; do
        # A version's colon, which apt writes %3a in names of files, would be read back as a colon.
        ln -f "$DEBS/$file" "$dir/${file//%3a/_}" 2>/dev/null || cp "$DEBS/$file" "$dir/${file//%3a/_}"
        dpkg-deb -f "$DEBS/$file"
        printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' "${file//%3a/_}" "$size" "$sha"
    done <"$plan" >"$dir/Packages"
    # mmdebstrap looks for essential packages in the suite that it was asked for.
    printf 'Origin: Debian\nSuite: trixie\nCodename: trixie\nArchitectures: amd64 all\nDate: %s\nSHA256:\n %s %s Packages\n' \
        "$(date -u -R -d "@$DISK_EPOCH")" "$(sha256sum "$dir/Packages" | cut -d' ' -f1)" \
        "$(stat -c %s "$dir/Packages")" >"$dir/Release"
}

setup_disk() {
    local key tmp plan packages work mode alone
    key=$(disk_key)
    artifact_ready images/disk "$key" && return 0
    if [ "$(id -u)" = 0 ]; then
        mode=root
    else
        mode=unshare
        grep -q "^$(id -un):" /etc/subuid 2>/dev/null || die "making the root disk as $(id -un) needs a range of user ids in /etc/subuid" \
            "as root, run: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $(id -un)" \
            "or run the set-up as root once with the same ORRERY_CACHE"
    fi
    setup_qemu
    setup_hosttools
    step "root disk: Debian packages"
    plan=$(plan_file disk)
    mapfile -t packages < <(list_of "$ORRERY_ROOT/guests/disk/packages.txt")
    packages+=('?essential')
    plan_and_fetch closure trixie disk "the root disk's packages" "${packages[@]}"
    need_space "$ORRERY_CACHE" 2500 "the root disk"
    step "root disk: installing $(wc -l <"$plan") packages (about a minute)"
    tmp=$(begin_artifact images/disk)
    # An ordinary user's mmdebstrap works as one of the user's other ids, who can't read a private home.
    if [ "$mode" = root ]; then
        work="$tmp/work"
        mkdir "$work"
    else
        need_space /var/tmp 1000 "the root disk"
        work=$(mktemp -d /var/tmp/orrery-disk.XXXXXX)
        chmod 755 "$work"
    fi
    local_repository "$work/repository" "$plan"
    mkdir "$work/recipe"
    cp -r "$ORRERY_ROOT/guests/disk/customize" "$ORRERY_ROOT/guests/disk/files" "$work/recipe/"
    chmod -R a+rX "$work"
    awk '{print $3 "  " $1}' "$plan" >"$tmp/packages.sha256"
    mapfile -t packages < <(list_of "$ORRERY_ROOT/guests/disk/packages.txt")
    # As root, mmdebstrap mounts /proc and the like in the new system: in a mount namespace of its
    # own, so that nothing stays mounted if it is killed. (A plain chroot can't have one.)
    alone=()
    if [ "$mode" = root ] && unshare --mount true 2>/dev/null; then alone=(unshare --mount); fi
    # The recipe packs the tree itself: versions of mmdebstrap order their archives differently.
    mkdir -m 777 "$work/out"
    SOURCE_DATE_EPOCH=$DISK_EPOCH TMPDIR="$work" "${alone[@]}" mmdebstrap --mode="$mode" --variant=essential --format=null \
        --architectures=amd64 --include="$(IFS=, && printf '%s' "${packages[*]}")" \
        --aptopt='APT::Install-Recommends "0"' --aptopt='APT::Sandbox::User "root"' \
        --dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' \
        --customize-hook="$work/recipe/customize \"\$1\" $work/out/root.tar" \
        trixie /dev/null "deb [trusted=yes] copy://$work/repository ./" >"$ORRERY_CACHE/disk.log" 2>&1 || {
        tail -n 25 "$ORRERY_CACHE/disk.log" | sed 's/^/    /' >&2
        rm -rf "$work"
        [ "$mode" = root ] || warn "as $(id -un), the root disk needs user namespaces; root can make it without, for the same ORRERY_CACHE"
        explain_failure "installing the root disk (all of its words: $ORRERY_CACHE/disk.log)"
    }
    cp "$work/out/root.tar" "$tmp/root.tar"
    rm -rf "$work"
    step "root disk: packing"
    truncate -s "$DISK_SIZE" "$tmp/root.raw"
    # Its own defaults: this machine's may switch other features on.
    MKE2FS_CONFIG="$ORRERY_CACHE/hosttools/etc/mke2fs.conf" SOURCE_DATE_EPOCH=$DISK_EPOCH hosttool mke2fs -q -t ext4 -L orrery-root -U "$DISK_UUID" \
        -E "hash_seed=$DISK_UUID,lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0" -m 0 -O ^metadata_csum_seed \
        -d "$tmp/root.tar" "$tmp/root.raw" || explain_failure "making the root disk's filesystem"
    rm -f "$tmp/root.tar"
    "$ORRERY_CACHE/qemu/bin/qemu-img" convert -f raw -O qcow2 -c -m 1 -o compression_type=zstd "$tmp/root.raw" "$tmp/root.qcow2" ||
        explain_failure "packing the root disk"
    rm -f "$tmp/root.raw"
    finish_artifact images/disk "$tmp" "$key"
    say "    $(size_of "$ORRERY_CACHE/images/disk/root.qcow2") in $ORRERY_CACHE/images/disk/root.qcow2"
}

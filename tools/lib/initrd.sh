# shellcheck shell=bash
# Guest initrds: images/<kernel>/initrd is two cpio archives one after the other, the base userland
# (the same for every kernel) and that kernel's modules. More archives may be appended.
#
# The same packages give the same bytes: entries are sorted, belong to root, and carry no time
# but the epoch's.

INITRD_RECIPE=(tools/lib/initrd.sh guests/initrd/init guests/initrd/poweroff guests/initrd/packages.txt guests/initrd/prune.txt)

base_key() { recipe_key "${INITRD_RECIPE[@]}"; }
initrd_key() {
    printf '%s %s\n' "$(recipe_key "${INITRD_RECIPE[@]}" guests/initrd/modules.txt)" \
        "$(cut -d' ' -f1 "$ORRERY_CACHE/kernels/$1/packages.sha256" 2>/dev/null | sha256sum | cut -c1-16)"
}

# pack_cpio DIR: the folder as a newc archive on standard output. Padded to 512 bytes by cpio, so
# archives may be joined.
pack_cpio() {
    find "$1" -exec touch -h -d @0 {} +
    (cd "$1" && find . -print0 | sort -z |
        hosttool cpio --null --create --format=newc --reproducible --owner=0:0 --quiet)
}

setup_initrd_base() {
    local key tmp plan root name packages
    key=$(base_key)
    artifact_ready images/base "$key" && return 0
    setup_hosttools
    step "guest userland: Debian packages"
    plan=$(plan_file base)
    mapfile -t packages < <(list_of "$ORRERY_ROOT/guests/initrd/packages.txt")
    plan_and_fetch closure trixie base "the guest userland" "${packages[@]}"
    need_space "$ORRERY_CACHE" 500 "the guest userland"
    step "guest userland: packing"
    tmp=$(begin_artifact images/base)
    root="$tmp/root"
    # shellcheck disable=SC2046  # file names of packages have no blanks
    unpack_debs "$root" $(cut -d' ' -f1 "$plan")
    awk '{print $3 "  " $1}' "$plan" >"$tmp/packages.sha256"
    # lspci reads the plain list; the packed one would need zlib at every call.
    while read -r name; do
        # shellcheck disable=SC2086  # patterns
        (cd "$root" && rm -rf $name)
    done < <(list_of "$ORRERY_ROOT/guests/initrd/prune.txt")
    mkdir -p "$root"/{dev,proc,sys,run,tmp,mnt/share,root,etc/ssh,var/log,var/tmp,var/lib,var/empty,usr/local/bin,usr/local/sbin}
    ln -sfn /run "$root/var/run"
    ln -sfn mawk "$root/usr/bin/awk"
    install -m 755 "$ORRERY_ROOT/guests/initrd/init" "$root/init"
    install -m 755 "$ORRERY_ROOT/guests/initrd/poweroff" "$root/usr/sbin/poweroff"
    for name in reboot halt shutdown; do ln -sf poweroff "$root/usr/sbin/$name"; done
    # What the packages' own scripts would have written at installation.
    printf '%s\n' 'root:x:0:0:root:/root:/bin/bash' 'sshd:x:100:65534::/run/sshd:/usr/sbin/nologin' \
        'nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin' >"$root/etc/passwd"
    cp "$root/usr/share/base-passwd/group.master" "$root/etc/group"
    printf '%s\n' 'root:*:19000:0:99999:7:::' 'sshd:!:19000::::::' 'nobody:*:19000:0:99999:7:::' >"$root/etc/shadow"
    chmod 640 "$root/etc/shadow"
    printf 'passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nservices: files\nprotocols: files\nethers: files\nrpc: files\n' >"$root/etc/nsswitch.conf"
    printf '127.0.0.1 localhost orrery\n::1 localhost\n10.0.2.2 host\n' >"$root/etc/hosts"
    printf 'nameserver 10.0.2.3\n' >"$root/etc/resolv.conf"
    printf 'orrery\n' >"$root/etc/hostname"
    printf 'UsePAM no\nPermitRootLogin prohibit-password\nPasswordAuthentication no\nHostKey /etc/ssh/ssh_host_ed25519_key\nUseDNS no\nSubsystem sftp /usr/lib/openssh/sftp-server\nPrintMotd no\nAcceptEnv LANG LC_*\n' >"$root/etc/ssh/sshd_config"
    printf "PS1='\\\\u@\\\\h:\\\\w# '\\nexport PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin LANG=C.UTF-8\\nulimit -l unlimited\\n" >"$root/etc/profile"
    rm -f "$root/etc/profile.d/"*
    "$root/usr/sbin/ldconfig" -r "$root" || explain_failure "ldconfig for the guest userland"
    rm -rf "$root/var/cache"
    check_libraries "$root"
    find "$root" -name '*.pyc' -delete
    chmod 1777 "$root/tmp" "$root/var/tmp"
    pack_cpio "$root" >"$tmp/base.cpio" || explain_failure "packing the guest userland"
    rm -rf "$root"
    finish_artifact images/base "$tmp" "$key"
    say "    $(size_of "$ORRERY_CACHE/images/base/base.cpio")"
}

# Pruning, or a new version of a package, could take a library from a program: found here rather than
# in a guest.
check_libraries() {
    local root=$1 lib="$1/usr/lib/x86_64-linux-gnu" lost
    lost=$(find "$root/usr/bin" "$root/usr/sbin" "$root/usr/lib/openssh" "$lib/libibverbs" -type f -print |
        while read -r file; do
            "$root/usr/lib64/ld-linux-x86-64.so.2" --library-path "$lib" --list "$file" 2>/dev/null |
                sed -n "s|^[[:space:]]*\\(.*\\) => not found|\\1 of ${file#"$root"}|p"
        done)
    [ -z "$lost" ] || die "the guest userland lacks libraries that its programs need (see guests/initrd/prune.txt):" "$lost"
}

# modules_closure KERNELDIR: the paths (from lib/modules/<release>) of the wanted modules with all
# that modules.dep says they need.
modules_closure() {
    local release top
    release=$(cat "$1/release")
    top="$1/modules/lib/modules/$release"
    # Softdeps too: kmod loads them before the module itself.
    list_of "$ORRERY_ROOT/guests/initrd/modules.txt" | awk -v dep="$top/modules.dep" -v soft="$top/modules.softdep" '
        function norm(n) { gsub(/-/, "_", n); return n }
        function want(p,   i, n, list) {
            if (p == "" || p in seen) return
            seen[p] = 1; print p
            n = split(needs[p], list, " "); for (i = 1; i <= n; i++) want(list[i])
            n = split(softly[p], list, " "); for (i = 1; i <= n; i++) want(path[list[i]])
        }
        BEGIN {
            while ((getline line < dep) > 0) {
                p = line; sub(/:.*/, "", p); sub(/^[^:]*: */, "", line); needs[p] = line
                n = p; sub(/.*\//, "", n); sub(/\.ko.*/, "", n); path[norm(n)] = p
            }
            while ((getline line < soft) > 0) {
                n = split(line, w, " ")
                for (i = 3; i <= n; i++) if (w[i] !~ /:$/) softly[path[norm(w[2])]] = softly[path[norm(w[2])]] " " norm(w[i])
            }
        }
        { want(path[norm($1)]) }' | sort
}

setup_initrd() {
    local name=$1 key tmp release root kernel file
    setup_kernel "$name"
    setup_initrd_base
    key=$(initrd_key "$name")
    artifact_ready "images/$name" "$key" && return 0
    setup_hosttools
    step "guest image: initrd for $name"
    kernel="$ORRERY_CACHE/kernels/$name"
    release=$(cat "$kernel/release")
    tmp=$(begin_artifact "images/$name")
    root="$tmp/root"
    mkdir -p "$root/usr/lib/modules/$release"
    while read -r file; do
        install -D -m 644 "$kernel/modules/lib/modules/$release/$file" "$root/usr/lib/modules/$release/$file"
    done < <(modules_closure "$kernel")
    for file in modules.order modules.builtin modules.builtin.modinfo; do
        cp "$kernel/modules/lib/modules/$release/$file" "$root/usr/lib/modules/$release/"
    done
    # An index of these modules alone is a fraction of the full one, and quicker to search.
    ln -s usr/lib "$root/lib"
    hosttool depmod -b "$root" "$release" || explain_failure "depmod for the initrd of $name"
    rm -f "$root/lib" "$root/usr/lib/modules/$release"/modules.{alias,builtin.modinfo,dep,order,symbols}
    {
        cat "$ORRERY_CACHE/images/base/base.cpio"
        pack_cpio "$root"
    } >"$tmp/initrd" || explain_failure "packing the initrd of $name"
    rm -rf "$root"
    finish_artifact "images/$name" "$tmp" "$key"
    say "    $(size_of "$ORRERY_CACHE/images/$name/initrd")"
}

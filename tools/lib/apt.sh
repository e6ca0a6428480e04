# shellcheck shell=bash
# Debian packages fetched into the cache with a private apt state: the machine's own package lists,
# versions and installed packages are neither read nor changed. Signatures are checked by apt
# against Debian's archive keys, as for any package.
#
# Needs lib/common.sh. A "pool" is a private apt state for one set of suites.

DEBS="$ORRERY_CACHE/debs"

# The mirror that this machine already uses for Debian, so that a local mirror or proxy keeps working.
# shellcheck disable=SC2016 # apt's own placeholder
debian_mirror() {
    local uri
    uri=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' 'Origin: Debian' 2>/dev/null |
        grep -v -- '-security' | head -n 1) || true
    if [ -z "$uri" ]; then
        # Before the first `apt-get update` there are no targets; the addresses it would read are known.
        uri=$(apt-get update --print-uris 2>/dev/null |
            sed -nE "s#^'(.*)/dists/(bookworm|trixie|oldstable|stable)/InRelease'.*#\1#p" | head -n 1) || true
    fi
    [ -n "$uri" ] || die "apt knows no Debian mirror here (apt-get indextargets lists none with component main)" \
        "add one to /etc/apt/sources.list, as Debian's installer writes it"
    printf '%s\n' "$uri"
}

debian_keyring() {
    local f
    for f in /usr/share/keyrings/debian-archive-keyring.{gpg,pgp}; do
        if [ -f "$f" ]; then
            printf '%s\n' "$f"
            return
        fi
    done
    die "Debian's archive keys are missing: /usr/share/keyrings/debian-archive-keyring.gpg" \
        "install them with: apt-get install debian-archive-keyring"
}

pool_dir() { printf '%s/apt/%s\n' "$ORRERY_CACHE" "$1"; }
pool_apt() { # POOL apt-get|apt-cache ARGS...
    local pool=$1 tool=$2
    shift 2
    "$tool" -c "$(pool_dir "$pool")/apt.conf" "$@"
}

# The suites of a pool. Backports give way to the release unless a package is named in the pins.
pool_suites() {
    case $1 in
    bookworm) echo bookworm ;;
    trixie) echo trixie trixie-backports ;;
    *) die "no such package pool: $1 (bookworm or trixie)" ;;
    esac
}

# pool_open POOL: make the private state and fetch the package lists, once per set-up.
pool_open() {
    local pool=$1 dir mirror keyring suite
    dir=$(pool_dir "$pool")
    [ -e "$dir/.open.$$" ] && return 0
    mirror=$(debian_mirror)
    keyring=$(debian_keyring)
    mkdir -p "$dir/state/lists/partial" "$dir/cache" "$DEBS/partial"
    : >"$dir/status"
    for suite in $(pool_suites "$pool"); do
        printf 'deb [arch=amd64 signed-by=%s] %s %s main\n' "$keyring" "$mirror" "$suite"
    done >"$dir/sources.list"
    # QEMU from backports (the release's is older than 10.1), with the firmware built for it.
    printf 'Package: qemu-system-* qemu-utils seabios ovmf\nPin: release n=trixie-backports\nPin-Priority: 900\n' >"$dir/preferences"
    # The machine's own apt.conf.d still applies (proxies, certificates); its hooks don't, they
    # belong to the machine's state.
    cat >"$dir/apt.conf" <<CONF
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Post-Invoke;
#clear DPkg::Pre-Install-Pkgs;
Dir::Etc::SourceList "$dir/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "$dir/preferences";
Dir::Etc::PreferencesParts "/dev/null";
Dir::State "$dir/state";
Dir::State::status "$dir/status";
Dir::State::extended_states "$dir/extended_states";
Dir::Cache "$dir/cache";
Dir::Cache::archives "$DEBS";
Dir::Cache::pkgcache "pkgcache.bin";
Dir::Cache::srcpkgcache "srcpkgcache.bin";
Dir::Log "$dir";
APT::Architecture "amd64";
APT::Architectures { "amd64"; };
APT::Install-Recommends "0";
APT::Install-Suggests "0";
APT::Sandbox::User "root";
APT::Keep-Downloaded-Packages "1";
APT::Get::AllowUnauthenticated "0";
Acquire::Languages "none";
Acquire::ForceHash "SHA256";
Acquire::Retries "0";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "0";
Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "0";
Acquire::AllowInsecureRepositories "0";
CONF
    step "reading Debian's package lists ($(pool_suites "$pool" | tr ' ' ,))"
    retry "the package lists of $(pool_suites "$pool")" pool_update "$pool" || die \
        "the package lists of Debian ($(pool_suites "$pool")) can't be fetched from the mirror that apt uses here" \
        "check the network with: apt-get update"
    rm -f "$dir"/.open.*
    : >"$dir/.open.$$"
}

# apt-get update exits 0 although a list failed; its words tell.
pool_update() {
    local log
    log="$(pool_dir "$1")/update.log"
    if pool_apt "$1" apt-get update >"$log" 2>&1 && ! grep -qE '^(E:|Err:|W: (Failed|Some index|GPG))' "$log"; then
        grep -E '^Fetched' "$log" | sed -E 's/^/    /' || true
        return 0
    fi
    grep -E '^(E|W|Err):?' "$log" | sed 's/^/    /' >&2 || cat "$log" >&2
    return 1
}

# pool_plan POOL PACKAGE...: "file size sha256" of each package and of all that it depends on, as
# apt resolves it on a machine with nothing installed (so that libc and the loader come along).
pool_plan() {
    local pool=$1 plan none
    shift
    # An empty archive folder makes apt name every file, the ones in the cache too.
    none="$(pool_dir "$pool")/none"
    mkdir -p "$none/partial"
    if ! plan=$(pool_apt "$pool" apt-get -o Dir::Cache::archives="$none" --print-uris -qq install "$@" 2>&1); then
        printf '    %s\n' "${plan//$'\n'/$'\n'    }" >&2
        die "Debian ($(pool_suites "$pool")) has no installable set of: $*"
    fi
    plan_lines <<<"$plan"
}
# The same of the packages alone.
pool_plan_alone() {
    local pool=$1 package plan
    shift
    plan=$(for package in "$@"; do pool_apt "$pool" apt-get download --print-uris "$package"; done | plan_lines)
    [ "$(wc -l <<<"$plan")" = $# ] || die "Debian's package list states no SHA-256 for each of: $*"
    printf '%s\n' "$plan"
}
plan_lines() { sed -nE "s/^'[^']*' ([^ ]+) ([0-9]+) SHA256:([0-9a-f]{64})\$/\1 \2 \3/p" | sort; }

# A plan is kept with the words that it was made for: making an image again, after a change of its
# recipe, uses the same packages and needs no network. `tools/setup --update` forgets the plans.
plan_file() {
    mkdir -p "$ORRERY_CACHE/plans"
    printf '%s/plans/%s\n' "$ORRERY_CACHE" "$1"
}
plan_is_for() { # NAME WORDS...
    local name=$1
    shift
    printf '%s\n' "$*" >"$ORRERY_CACHE/plans/$name.for"
}
plan_in_cache() { # NAME WORDS...
    local name=$1 plan file size sha
    shift
    plan=$(plan_file "$name")
    [ "$(cat "$plan.for" 2>/dev/null)" = "$*" ] && [ -s "$plan" ] || return 1
    while read -r file size sha; do
        deb_ok "$file" "$size" "$sha" || return 1
    done <"$plan"
    say "    $(wc -l <"$plan") packages, all in the cache"
}

# plan_and_fetch MODE POOL NAME WHAT PACKAGE...
plan_and_fetch() {
    local mode=$1 pool=$2 name=$3 what=$4 plan
    shift 4
    plan_in_cache "$name" "$@" && return 0
    pool_open "$pool"
    plan=$(plan_file "$name")
    if [ "$mode" = alone ]; then pool_plan_alone "$pool" "$@" >"$plan"; else pool_plan "$pool" "$@" >"$plan"; fi
    pool_fetch "$mode" "$pool" "$what" "$plan" "$@"
    plan_is_for "$name" "$@"
}

deb_ok() { [ "$(stat -c %s "$DEBS/$1" 2>/dev/null)" = "$2" ] && printf '%s  %s\n' "$3" "$DEBS/$1" | sha256sum --status -c; }

# pool_fetch MODE POOL WHAT PLANFILE PACKAGE...: download what the plan names and the cache lacks: the
# packages with all that they depend on (mode closure), or only the packages themselves (alone).
pool_fetch() {
    local mode=$1 pool=$2 what=$3 plan=$4 file size sha total=0 count=0 bytes=0
    shift 4
    while read -r file size sha; do
        total=$((total + 1))
        deb_ok "$file" "$size" "$sha" && continue
        # A file of another content under that name (cut short, or corrupted) would be kept by apt.
        rm -f "$DEBS/$file"
        count=$((count + 1))
        bytes=$((bytes + size))
    done <"$plan"
    if [ "$count" = 0 ]; then
        say "    $total packages, all in the cache"
        return 0
    fi
    need_space "$DEBS" $((bytes / 1000000 + 50)) "$what"
    say "    $total packages, $count to fetch, $(mib "$bytes")"
    retry "$what" pool_download "$mode" "$pool" "$count" "$@" || die \
        "$what can't be fetched from the mirror that apt uses here" \
        "what has arrived is kept in $DEBS; run the command again to go on from there"
    while read -r file size sha; do
        deb_ok "$file" "$size" "$sha" || die "$DEBS/$file doesn't have the SHA-256 that Debian's package list states ($sha)" \
            "remove the file and run the command again"
    done <"$plan"
}

pool_download() {
    local mode=$1 pool=$2 count=$3 command
    shift 3
    case $mode in
    closure) command=(-y --download-only install) ;;
    alone) command=(download) ;;
    esac
    # `download` writes to the working folder.
    (cd "$DEBS" && pool_apt "$pool" apt-get -q "${command[@]}" "$@") 2>&1 | tee "$(pool_dir "$pool")/download.log" | show_downloads "$count"
}

# Large packages and every twentieth get a line as they arrive: a silent minute looks like a hang.
# apt's line: Get:N ADDRESS SUITE/main ARCH PACKAGE ARCH VERSION [SIZE UNIT]
show_downloads() {
    local count=$1 i=0 line word number
    while read -r line; do
        case $line in
        Get:*)
            i=$((i + 1))
            read -r -a word <<<"${line//[\[\]]/}"
            number=${word[-2]%.*}
            if [ "${word[-1]}" = MB ] || [ $((i % 20)) = 0 ] || [ "$i" = "$count" ] ||
                { [ "${word[-1]}" = kB ] && [ "$number" -ge 2000 ]; }; then
                say "    [$i/$count] ${word[-5]} ${word[-3]}, ${word[-2]} ${word[-1]}"
            fi
            ;;
        Err:* | E:* | W:*) say "    $line" ;;
        esac
    done
}

# unpack_debs DIR FILE...: like dpkg -x, but never replaces Debian's /bin -> usr/bin links by folders.
unpack_debs() {
    local dir=$1 file
    shift
    mkdir -p "$dir/usr/bin" "$dir/usr/sbin" "$dir/usr/lib" "$dir/usr/lib64"
    for file in bin sbin lib lib64; do
        [ -L "$dir/$file" ] || ln -s "usr/$file" "$dir/$file"
    done
    for file in "$@"; do
        dpkg-deb --fsys-tarfile "$DEBS/$file" |
            tar -x -p -C "$dir" --no-same-owner --keep-directory-symlink -f - || explain_failure "unpacking $DEBS/$file"
    done
}

# shellcheck shell=bash
# Debian packages of this machine: those of the lists in tools/packages/ that are missing are
# installed if we may; who may not is told the command.

# setup_packages LIST...
setup_packages() {
    local list names=() missing=() runner=() files=() wanted
    [ $# -gt 0 ] || return 0
    command -v dpkg-query >/dev/null || die "this machine has no dpkg: Orrery is set up on Debian 12 or 13" \
        "elsewhere, use a container or a virtual machine with Debian"
    for list in "$@"; do files+=("$ORRERY_ROOT/tools/packages/$list.txt"); done
    mapfile -t names < <(list_of "${files[@]}" | sort -u)
    if [ -n "$(clang_runtime)" ] && [[ " ${names[*]} " == *" clang "* ]]; then names+=("$(clang_runtime)"); fi
    mapfile -t missing < <(missing_packages "${names[@]}")
    [ ${#missing[@]} -gt 0 ] || return 0

    wanted="${missing[*]}"
    if [ "$(id -u)" = 0 ]; then
        runner=(env)
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        runner=(sudo env)
    elif command -v sudo >/dev/null && [ -t 0 ]; then
        say "sudo asks for your password to install Debian packages: $wanted"
        runner=(sudo env)
    else
        die "Debian packages are missing, and $(id -un) may not install them. As root, run:" \
            "apt-get update && apt-get install --no-install-recommends $wanted"
    fi
    step "installing ${#missing[@]} Debian packages: $wanted"
    retry "Debian's package lists" apt_update "${runner[@]}" || die "apt-get update failed" \
        "check the network and /etc/apt/sources.list"
    need_space / 2500 "the Debian packages"
    retry "Debian packages" apt_install "${runner[@]}" -- "${missing[@]}" || die \
        "installing Debian packages failed (the lines above say why): $wanted"
    mapfile -t missing < <(missing_packages "${names[@]}")
    [ ${#missing[@]} = 0 ] || die "apt-get installed all but: ${missing[*]}"
}

# Debian 13 splits clang's run-time library, which has libFuzzer and the sanitizers, from clang.
clang_runtime() {
    # shellcheck disable=SC1091
    case $(. /etc/os-release && echo "${VERSION_ID:-}") in
    12) echo libclang-rt-14-dev ;;
    13) echo libclang-rt-19-dev ;;
    esac
}

missing_packages() {
    dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^ii  *//p' | sort -u >"/tmp/.orrery-have.$$" || true
    printf '%s\n' "$@" | sort -u | comm -23 - "/tmp/.orrery-have.$$"
    rm -f "/tmp/.orrery-have.$$"
}

apt_update() { "$@" DEBIAN_FRONTEND=noninteractive apt-get -q update 2>&1 | grep -E '^(Fetched|E:|W:|Err)' | sed 's/^/    /'; }

apt_install() {
    local runner=()
    while [ "$1" != -- ]; do
        runner+=("$1")
        shift
    done
    shift
    "${runner[@]}" DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 \
        install --no-install-recommends "$@" 2>&1 | show_install
}

# apt and dpkg say a line or two for each package, which is too much: they are counted.
show_install() {
    local line got=0 unpacked=0 done=0
    while read -r line; do
        case $line in
        Get:*)
            got=$((got + 1))
            [ $((got % 40)) != 0 ] || say "    $got packages fetched"
            ;;
        Unpacking\ *)
            unpacked=$((unpacked + 1))
            [ $((unpacked % 20)) != 0 ] || say "    $unpacked packages unpacked"
            ;;
        Setting\ up\ *)
            done=$((done + 1))
            [ $((done % 40)) != 0 ] || say "    $done packages set up"
            ;;
        *newly\ installed* | Need\ to\ get* | After\ this* | Fetched* | E:* | W:* | Err:* | dpkg:* | *\ returned\ an\ error*) say "    $line" ;;
        esac
    done
}

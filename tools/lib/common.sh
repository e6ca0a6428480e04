# shellcheck shell=bash
# What every set-up script shares: messages, retries, the cache folder, its lock and its stamps.
# Sourced, never run. The caller has `set -euo pipefail`.

ORRERY_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# HOME may be unset in a bare container; the cache then goes where root's would.
ORRERY_CACHE=${ORRERY_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/orrery}
export ORRERY_ROOT ORRERY_CACHE
# Sorting and messages must not depend on the user's language: images are compared byte by byte.
export LC_ALL=C
# Nor their modes on the user's umask.
umask 022

say() { printf '%s\n' "$*"; }
step() { printf '==> %s\n' "$*"; }
warn() { printf 'warning: %s\n' "$*" >&2; }
die() {
    printf 'error: %s\n' "$1" >&2
    shift
    local line
    for line in "$@"; do printf '       %s\n' "$line" >&2; done
    exit 1
}

mib() { printf '%d.%d MB' $(($1 / 1000000)) $(($1 % 1000000 / 100000)); }
size_of() { mib "$(stat -c %s "$1")"; }

# retry WHAT CMD...: registries fail now and then; say what was being fetched each time it does.
retry() {
    local what=$1 try wait=${ORRERY_RETRY_SECONDS:-2}
    shift
    for try in 1 2 3 4 5; do
        if "$@"; then return 0; fi
        if [ "$try" -lt 5 ]; then
            warn "fetching $what failed (try $try of 5), trying again in $wait s"
            sleep "$wait"
            wait=$((wait * 2))
        fi
    done
    return 1
}

# need_space DIR MEGABYTES WHAT: a clear message before the work rather than a broken file after it.
need_space() {
    local free
    free=$(df -Pk "$1" | awk 'NR == 2 {print int($4 / 1024)}')
    if [ "$free" -lt "$2" ]; then
        die "not enough room for $3: $1 has $free MB free and $2 MB are needed" \
            "free some space, or choose another folder with ORRERY_CACHE=/path/with/room"
    fi
}

# explain_failure WHAT: a step died; if the disk ran full meanwhile, that is what to say.
explain_failure() {
    local free
    free=$(df -Pk "$ORRERY_CACHE" 2>/dev/null | awk 'NR == 2 {print int($4 / 1024)}')
    if [ -n "$free" ] && [ "$free" -lt 8 ]; then
        die "$1 failed: the disk that holds $ORRERY_CACHE is full ($free MB free)" \
            "free some space, or choose another folder with ORRERY_CACHE=/path/with/room"
    fi
    die "$1 failed (the lines above say why)"
}

make_cache() {
    if mkdir -p "$ORRERY_CACHE" 2>/dev/null && [ -w "$ORRERY_CACHE" ]; then return 0; fi
    die \
        "the cache folder $ORRERY_CACHE can't be written" \
        "make it writable for $(id -un), or choose another with ORRERY_CACHE=/some/folder"
}

# One set-up at a time works in a cache; a second one waits and says for whom.
lock_cache() {
    make_cache
    exec 9>>"$ORRERY_CACHE/.lock"
    if ! flock -n 9; then
        say "another set-up (process $(cat "$ORRERY_CACHE/.lock.owner" 2>/dev/null || echo unknown)) is at work in $ORRERY_CACHE; waiting for it"
        flock 9
    fi
    echo $$ >"$ORRERY_CACHE/.lock.owner"
    # What a killed set-up left half done. Only this set-up holds the lock, so nobody uses it.
    rm -rf --one-file-system "$ORRERY_CACHE"/.tmp.* || die "leavings of an earlier set-up can't be removed (above)" \
        "as root, run: rm -rf $ORRERY_CACHE/.tmp.*"
}

# A folder of the cache is made under a temporary name and renamed when it is whole, so a set-up that
# is killed leaves nothing that looks ready.
begin_artifact() {
    local tmp
    tmp="$ORRERY_CACHE/.tmp.$(tr / - <<<"$1")"
    rm -rf "$tmp"
    mkdir -p "$tmp"
    printf '%s\n' "$tmp"
}

# finish_artifact NAME TMP KEY: record the hash of every file, then the key, then move into place.
finish_artifact() {
    local name=$1 tmp=$2 key=$3 old
    (cd "$tmp" && find . -type f ! -name .stamp -print0 | sort -z | xargs -0 -r sha256sum) >"$tmp.sha256" || explain_failure "recording the hashes of $name"
    mv "$tmp.sha256" "$tmp/.files.sha256"
    printf '%s\n' "$key" >"$tmp/.stamp"
    mkdir -p "$(dirname "$ORRERY_CACHE/$name")"
    old="$ORRERY_CACHE/.tmp.old"
    rm -rf "$old"
    if [ -e "$ORRERY_CACHE/$name" ]; then mv -T "$ORRERY_CACHE/$name" "$old"; fi
    mv -T "$tmp" "$ORRERY_CACHE/$name"
    rm -rf "$old"
}

artifact_ready() { [ "$(cat "$ORRERY_CACHE/$1/.stamp" 2>/dev/null)" = "$2" ]; }

# verify_artifact NAME: every file against the hash recorded when it was made.
verify_artifact() {
    local out
    [ -f "$ORRERY_CACHE/$1/.files.sha256" ] || return 1
    [ -s "$ORRERY_CACHE/$1/.files.sha256" ] || return 0
    if ! out=$(cd "$ORRERY_CACHE/$1" && sha256sum --quiet -c .files.sha256 2>&1); then
        warn "$ORRERY_CACHE/$1 has changed since it was made:"
        printf '  %s\n' "${out//$'\n'/$'\n'  }" >&2
        return 1
    fi
}

# recipe_key FILE...: one hash over the files that say how an artifact is made.
recipe_key() { (cd "$ORRERY_ROOT" && cat "$@" | sha256sum | cut -c1-64); }

# Lines of a list file without comments and blanks.
list_of() { sed -e 's/#.*//' -e 's/[[:space:]]*$//' -e '/^$/d' "$@"; }

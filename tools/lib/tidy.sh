# shellcheck shell=bash
# clang-tidy over C++ and C sources. A file that passed isn't looked at again until it, a header of ours
# that it includes (in whatever depth), .clang-tidy or clang-tidy itself has changed: a full pass takes
# minutes, one after an edit takes seconds.

# tidy_inputs FILE...: for each, one file in TIDY_STATE/wanted naming all that its result depends on.
tidy_inputs() {
    local rules
    rules="$(sha256sum <.clang-tidy) $(clang-tidy --version | grep -i version)"
    # Every source's hash and its includes of the form "folder/file.h" or "file.h"; then what each reaches.
    { sources | xargs sha256sum && sources | xargs grep -HE '^ *# *include *"'; } |
        awk -v rules="$rules" -v state="$TIDY_STATE/wanted" -v wanted="$*" '
            /^[0-9a-f]+  / { hash[$2] = $1; next }
            {
                colon = index($0, ":"); file = substr($0, 1, colon - 1)
                split(substr($0, colon + 1), quoted, "\""); folder = file; sub(/[^\/]*$/, "", folder)
                included = (folder quoted[2]) in hash ? folder quoted[2] : quoted[2]
                if (included in hash) includes[file] = includes[file] " " included
            }
            END {
                count = split(wanted, files, " ")
                for (n = 1; n <= count; ++n) {
                    out = files[n]; gsub(/\//, "+", out); out = state "/" out
                    delete seen; queue[1] = files[n]; seen[files[n]] = 1; last = 1
                    print rules > out
                    for (next_one = 1; next_one <= last; ++next_one) {
                        print hash[queue[next_one]], queue[next_one] > out
                        many = split(includes[queue[next_one]], more, " ")
                        for (m = 1; m <= many; ++m) if (!(more[m] in seen)) { seen[more[m]] = 1; queue[++last] = more[m] }
                    }
                    close(out)
                }
            }'
}

# tidy_one FILE: checks it unless it has passed as it is now.
tidy_one() {
    local file=$1 stamp=${1//\//+} found errors
    if cmp -s "$TIDY_STATE/wanted/$stamp" "$TIDY_STATE/passed/$stamp"; then return 0; fi
    errors="$TIDY_STATE/$stamp.errors"
    if found=$(clang-tidy --quiet -p "$TIDY_BUILD" "$file" 2>"$errors"); then
        cp "$TIDY_STATE/wanted/$stamp" "$TIDY_STATE/passed/$stamp"
    else
        printf '%s\n' "$found"
        grep -vE '^[0-9]+ warnings|^Suppressed|^Use -header-filter' "$errors" >&2 || true
        return 1
    fi
}

# tidy BUILD JOBS FILE...: BUILD has the compile_commands.json. Fails if anything is found.
tidy() {
    local jobs=$2
    export TIDY_BUILD=$1 TIDY_STATE=$1/lint
    shift 2
    rm -rf "$TIDY_STATE/wanted"
    mkdir -p "$TIDY_STATE/wanted" "$TIDY_STATE/passed"
    tidy_inputs "$@"
    export -f tidy_one
    # shellcheck disable=SC2016  # expanded by the inner shell
    printf '%s\n' "$@" | xargs -P "$jobs" -n 1 bash -c 'tidy_one "$1"' tidy_one
}

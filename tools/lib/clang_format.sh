# shellcheck shell=bash
# clang-format 14, which Debian 12 has, on every machine: other versions format the same rules
# differently, and a check that depends on the machine is no check.

clang_format_key() { recipe_key tools/lib/clang_format.sh; }
clang_format_ready() { command -v clang-format-14 >/dev/null || artifact_ready clang-format "$(clang_format_key)"; }

setup_clang_format() {
    local tmp plan
    clang_format_ready && return 0
    step "clang-format 14: Debian 12's"
    plan=$(plan_file clang-format)
    plan_and_fetch closure bookworm clang-format "clang-format 14" clang-format-14
    tmp=$(begin_artifact clang-format)
    mkdir -p "$tmp/bin"
    # shellcheck disable=SC2046  # file names of packages have no blanks
    unpack_debs "$tmp/root" $(cut -d' ' -f1 "$plan")
    rm -rf "$tmp/root/usr/share" "$tmp/root/var" "$tmp/root/etc"
    make_wrapper "$tmp/bin/clang-format" usr/lib/llvm-14/bin/clang-format
    finish_artifact clang-format "$tmp" "$(clang_format_key)"
}

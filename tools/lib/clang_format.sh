# shellcheck shell=bash
# clang-format 14, which Debian 12 has, on every machine: other versions format the same rules
# differently, and a check that depends on the machine is no check.

clang_format_key() { recipe_key tools/lib/clang_format.sh; }
clang_format_ready() { command -v clang-format-14 >/dev/null || artifact_ready clang-format "$(clang_format_key)"; }

setup_clang_format() {
    local tmp plan
    clang_format_ready && return 0
    pool_open bookworm
    step "clang-format 14: fetching Debian 12's"
    plan="$ORRERY_CACHE/.plan.clang-format"
    pool_plan bookworm clang-format-14 >"$plan"
    pool_fetch bookworm "clang-format 14" "$plan" clang-format-14
    tmp=$(begin_artifact clang-format)
    mkdir -p "$tmp/bin"
    # shellcheck disable=SC2046  # file names of packages have no blanks
    unpack_debs "$tmp/root" $(cut -d' ' -f1 "$plan")
    rm -rf "$tmp/root/usr/share" "$tmp/root/var" "$tmp/root/etc"
    make_wrapper "$tmp/bin/clang-format" usr/lib/llvm-14/bin/clang-format
    finish_artifact clang-format "$tmp" "$(clang_format_key)"
}

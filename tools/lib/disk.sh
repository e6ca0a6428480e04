# shellcheck shell=bash
disk_key() { recipe_key tools/lib/disk.sh; }
setup_disk() { die "not yet"; }

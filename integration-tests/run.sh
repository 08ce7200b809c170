#!/usr/bin/env bash
# `make test`: format, lints, then every test of every package; ends in one summary line.
set -euo pipefail
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT

echo "== format"
cargo fmt --all --check

echo "== clippy"
cargo clippy --locked --workspace --all-targets -- -D warnings

echo "== build"
cargo build --locked --workspace --all-targets

echo "== tests"
status=0
cargo test --locked --workspace --no-fail-fast -- --format terse 2>&1 | tee "$log" || status=$?

count() { awk -v word="$1" '/^test result:/ { for (i = 1; i < NF; i++) if (index($(i + 1), word) == 1) sum += $i } END { print sum + 0 }' "$log"; }
passed=$(count passed)
failed=$(count failed)
echo
echo "$passed passed, $failed failed"
exit "$status"

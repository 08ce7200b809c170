#!/usr/bin/env bash
# `make test`: format, lints, every test of every package, then the scenarios on containers. Ends in one summary line, before which
# stands what was left out and why. With CI=true nothing may be left out.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
left_out=()
status=0

echo "== format"
cargo fmt --all --check

echo "== clippy"
cargo clippy --locked --workspace --all-targets -- -D warnings

echo "== build"
cargo build --locked --workspace --all-targets

echo "== tests"
cargo test --locked --workspace --no-fail-fast -- --format terse 2>&1 | tee "$log" || status=$?
count() { awk -v word="$1" '/^test result:/ { for (i = 1; i < NF; i++) if (index($(i + 1), word) == 1) sum += $i } END { print sum + 0 }' "$log"; }
passed=$(count passed)
failed=$(count failed)

echo "== containers"
if missing=$(integration-tests/compose/available.sh); then
  for scenario in integration-tests/compose/scenario-*.sh; do
    if timeout --kill-after 30 900 "$scenario" "$CARGO_TARGET_DIR/debug"; then
      passed=$((passed + 1))
    else
      failed=$((failed + 1))
      status=1
    fi
  done
else
  left_out+=("the scenarios on containers: $missing")
fi

echo
for what in ${left_out[@]+"${left_out[@]}"}; do
  echo "left out: $what"
done
if [ "${#left_out[@]}" -gt 0 ] && [ "${CI:-}" = true ]; then
  echo "error: under CI=true nothing may be left out"
  failed=$((failed + ${#left_out[@]}))
  status=1
fi
if [ "${#left_out[@]}" -gt 0 ]; then
  echo "$passed passed, $failed failed, ${#left_out[@]} skipped"
else
  echo "$passed passed, $failed failed"
fi
exit "$status"

#!/usr/bin/env bash
# `make bench`: every benchmark query at a small size, parallelism 1 and 2, one line of JSON each. Absolute figures drift with the
# machine: compare runs made side by side.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --release --locked -p levada-integration-tests --bin nexmark
nexmark="${CARGO_TARGET_DIR:-target}/release/nexmark"
text=$(mktemp)
trap 'rm -f "$text"' EXIT
"$nexmark" --make-text "$text" --bytes 32000000 >/dev/null
for parallelism in 1 2; do
  for query in q0 q1 q2 q7 q7k q12 q12e; do
    "$nexmark" --query "$query" --parallelism "$parallelism" --events 10000000 --json
  done
  "$nexmark" --query words --parallelism "$parallelism" --file "$text" --json
done

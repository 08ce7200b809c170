#!/usr/bin/env bash
# `make demo`: builds, then runs two jobs on three processes and kills one of them; see integration-tests/src/bin/demo.rs.
set -euo pipefail
cd "$(dirname "$0")/.."
echo "demo: building (the first build takes some minutes)"
cargo build --locked --workspace --bins
exec "${CARGO_TARGET_DIR:-target}/debug/demo"

#!/usr/bin/env bash
# Installs what building and testing needs and this machine lacks (Debian and its kin), saying so. Idempotent.
set -euo pipefail

missing=()
command -v cc >/dev/null || missing+=(gcc libc6-dev)
command -v make >/dev/null || missing+=(make)
# RocksDB is compiled from C++, and its bindings are made with libclang.
command -v g++ >/dev/null || missing+=(g++)
compgen -G '/usr/lib/llvm-*/lib/libclang*.so*' >/dev/null || ldconfig -p 2>/dev/null | grep -q 'libclang.*\.so' || missing+=(libclang-dev)
command -v python3 >/dev/null || missing+=(python3)
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)

# the HDFS that tests start
[ "${LEVADA_SETUP:-}" != test ] || command -v java >/dev/null || missing+=(openjdk-17-jre-headless)

if [ "${#missing[@]}" -gt 0 ]; then
  echo "setup: installing ${missing[*]}"
  sudo=""
  [ "$(id -u)" = 0 ] || sudo=sudo
  if ! command -v apt-get >/dev/null; then
    echo "setup: no apt-get here; install these yourself: ${missing[*]}" >&2
    exit 1
  fi
  $sudo apt-get update -qq
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

if ! command -v cargo >/dev/null; then
  echo "setup: no Rust toolchain; install one with rustup (see rust-toolchain.toml for the version)" >&2
  exit 1
fi

#!/usr/bin/env bash
# Installs what building and testing needs and this machine lacks (Debian and its kin), saying so. Idempotent.
set -euo pipefail

missing=()
need() { # need PACKAGES COMMAND...: where the command fails, the packages are missing.
  local packages=$1
  shift
  # shellcheck disable=SC2206
  "$@" >/dev/null 2>&1 || missing+=($packages)
}

need "gcc libc6-dev" command -v cc
need make command -v make
# RocksDB is C++, and its bindings are made with libclang.
need g++ command -v c++
need libclang-dev sh -c 'ls /usr/lib/llvm-*/lib/libclang.so* /usr/lib/*/libclang*.so*'
need python3 command -v python3
need python3-venv python3 -c 'import ensurepip, venv'
need python3-pip python3 -c 'import pip'
need ca-certificates test -s /etc/ssl/certs/ca-certificates.crt
need curl command -v curl
# Tests run scenarios on containers where there is Docker.
if [ "${LEVADA_SETUP:-}" = test ] && command -v docker >/dev/null; then
  need debootstrap command -v debootstrap
  need binutils command -v strip
  docker compose version >/dev/null 2>&1 || need docker-compose command -v docker-compose
fi

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

#!/usr/bin/env bash
# An S3 server (moto) on 127.0.0.1 for tests of s3:// storage.
#
#   s3.sh fetch        fill the cache
#   s3.sh run PORT     serve until standard input ends; what is stored lives in memory
#
# Environment (default): LEVADA_SERVICES_CACHE (${XDG_CACHE_HOME:-$HOME/.cache}/levada-services)
#
# Any credentials are taken. Conditional puts are atomic, multipart uploads, ranges and bulk deletes work. It is one Python
# process: not for figures.
set -euo pipefail
requirement='moto[server]==5.2.1'
cache=${LEVADA_SERVICES_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/levada-services}
venv=$cache/s3-$(printf '%s' "$requirement" | cksum | cut -d' ' -f1)

die() { echo "s3: $*" >&2; exit 1; }

fetch() {
  [[ -e $venv/complete ]] && return
  command -v python3 >/dev/null || die "python3 is missing (Debian: python3, python3-venv)"
  mkdir -p "$cache"
  exec 8>"$cache/s3.lock"
  flock -w 600 8 || die "another process holds $cache/s3.lock"
  if [[ ! -e $venv/complete ]]; then
    rm -rf "$venv"
    python3 -m venv "$venv" || die "cannot make a virtual environment in $venv (Debian: python3-venv)"
    "$venv/bin/pip" install -q --disable-pip-version-check "$requirement" >&2 || die "pip could not install $requirement"
    : >"$venv/complete"
  fi
  exec 8>&-
}

# The server ends with whoever holds the other end of our standard input, however that one ends.
run() {
  exec 9<&0
  MOTO_ALLOW_NONEXISTENT_REGION=true "$venv/bin/moto_server" -H 127.0.0.1 -p "$1" </dev/null 9<&- &
  local server=$!
  { cat <&9 >/dev/null; kill "$server" 2>/dev/null; } &
  wait "$server" || true
}

case ${1:-} in
  fetch) fetch ;;
  run)
    [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || die "run needs a port"
    fetch
    run "$2"
    ;;
  *)
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"
    exit 2
    ;;
esac

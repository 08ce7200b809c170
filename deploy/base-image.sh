#!/usr/bin/env bash
# base-image.sh IMAGE [PACKAGE...]: makes a Docker image of a small Debian with what Levada's programs need, out of Debian's
# packages, for machines that reach no registry of images. Prints the image's name.
#
# Needs root, docker and debootstrap; takes one to three minutes and 100 MB of downloads the first time. The file system is kept as
# a tar below ${XDG_CACHE_HOME:-~/.cache}/levada and made anew only where the suite, the packages or this script have changed.
# SUITE: Debian's release, by default that of this machine, as programs need the C library that they were linked with.
set -euo pipefail

image=${1:?base-image.sh IMAGE [PACKAGE...]}
shift
suite=${SUITE:-$(. /etc/os-release && [ "$ID" = debian ] && echo "$VERSION_CODENAME" || echo bookworm)}
packages=$(printf '%s\n' ca-certificates libstdc++6 "$@" | sort -u | paste -sd, -)
key=$({ echo "$suite $packages"; cat "$0"; } | sha256sum | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/levada
archive=$cache/base-$key.tar

if [ "$(docker image inspect --format '{{index .Config.Labels "levada.base"}}' "$image" 2>/dev/null || true)" = "$key" ]; then
  echo "$image"
  exit 0
fi
if [ ! -e "$archive" ]; then
  command -v debootstrap >/dev/null || { echo "base-image: debootstrap is missing (apt-get install debootstrap)" >&2; exit 1; }
  echo "base-image: making Debian $suite with $packages (once; some minutes)" >&2
  mkdir -p "$cache"
  root=$(mktemp -d)
  trap 'rm -rf "$root" "$archive.partial"' EXIT
  debootstrap --variant=minbase --include="$packages" "$suite" "$root" >"$cache/base-$key.log" 2>&1 || {
    tail -n 5 "$cache/base-$key.log" >&2
    echo "base-image: debootstrap failed, see $cache/base-$key.log" >&2
    exit 1
  }
  rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/var/log/* "$root"/usr/share/{doc,man,info,locale}/*
  tar -C "$root" --numeric-owner -cf "$archive.partial" .
  mv "$archive.partial" "$archive"
fi
docker import --change "LABEL levada.base=$key" --change 'CMD ["bash"]' "$archive" "$image" >/dev/null
echo "$image"

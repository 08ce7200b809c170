#!/usr/bin/env bash
# images.sh PROGRAMS [TAG]: builds the images levada:TAG (default: latest) and levada-s3:TAG, for compose.yaml, out of the programs
# in the folder PROGRAMS (target/release after `make build`).
#
# BASE: the image to build on; by default one made by base-image.sh. It must have python3 for levada-s3.
# What has not changed is not built again.
set -euo pipefail
cd "$(dirname "$0")"

programs=${1:?images.sh PROGRAMS [TAG]}
tag=${2:-latest}
base=${BASE:-$(./base-image.sh levada-base python3)}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/levada
moto='moto[s3]==5.2.1 flask==3.1.2 flask-cors==6.0.1'
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT

# built IMAGE KEY: whether the image was built of just this.
built() { [ "$(docker image inspect --format '{{index .Config.Labels "levada.content"}}' "$1" 2>/dev/null || true)" = "$2" ]; }

# build IMAGE KEY DOCKERFILE: of the context folder; what docker says is shown where it fails.
build() {
  DOCKER_BUILDKIT=0 docker build --quiet --build-arg BASE="$base" --label levada.content="$2" --label levada.image=1 \
    --file "$3" --tag "$1" "$context" >"$context.log" 2>&1 || { cat "$context.log" >&2; rm -f "$context.log"; exit 1; }
  rm -f "$context.log"
  echo "images: built $1"
}

base_id=$(docker image inspect --format '{{.Id}}' "$base" 2>/dev/null || { docker pull --quiet "$base" >/dev/null && docker image inspect --format '{{.Id}}' "$base"; })

for program in levada levada-jobmanager levada-taskmanager; do
  # Debug information would be nine tenths of the image.
  strip --strip-debug -o "$context/$program" "$programs/$program"
done
key=$({ echo "$base_id"; cat Dockerfile "$context"/levada*; } | sha256sum | cut -c1-16)
built "levada:$tag" "$key" || build "levada:$tag" "$key" Dockerfile
rm -f "$context"/levada*

key=$({ echo "$base_id $moto"; cat s3.Dockerfile s3.py; } | sha256sum | cut -c1-16)
if ! built "levada-s3:$tag" "$key"; then
  version=$(docker run --rm "$base" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  site=$cache/moto-$(echo "$version $moto" | sha256sum | cut -c1-16)
  if [ ! -e "$site/complete" ]; then
    rm -rf "$site"
    # The image's Python runs them, not this machine's.
    # shellcheck disable=SC2086
    python3 -m pip install --quiet --no-warn-conflicts --root-user-action ignore --target "$site" --python-version "$version" \
      --implementation cp --only-binary=:all: $moto
    # Descriptions of services that nobody asks for are most of it.
    find "$site/botocore/data" -mindepth 1 -maxdepth 1 -type d ! -name s3 ! -name sts -exec rm -rf {} +
    touch "$site/complete"
  fi
  cp -r "$site" "$context/site"
  cp s3.py "$context/"
  build "levada-s3:$tag" "$key" s3.Dockerfile
fi

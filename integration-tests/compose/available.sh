#!/usr/bin/env bash
# available.sh: whether scenarios on containers can run here; prints why not. A Docker daemon that is installed and stopped is
# started.
set -euo pipefail

missing() { echo "$*"; exit 1; }
answers() { timeout 20 docker info >/dev/null 2>&1; }

command -v docker >/dev/null || missing "docker is not installed"
if ! answers && command -v dockerd >/dev/null && [ "$(id -u)" = 0 ]; then
  service docker start >/dev/null 2>&1 || true
  for _ in $(seq 30); do answers && break; sleep 1; done
fi
answers || missing "the Docker daemon does not answer"
docker compose version >/dev/null 2>&1 || command -v docker-compose >/dev/null || missing "docker-compose is not installed"
docker image inspect levada-base >/dev/null 2>&1 || command -v debootstrap >/dev/null || missing "debootstrap is not installed"

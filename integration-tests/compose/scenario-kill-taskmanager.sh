#!/usr/bin/env bash
# scenario-kill-taskmanager.sh PROGRAMS: stream A on a cluster of containers with its checkpoints in S3; a TaskManager's container is killed in
# the middle and comes back; the output must be exact and the checkpoints whole.
#
# Every wait is bounded. Containers, networks and volumes are removed at the end, images that other contents made too; those of this
# content are kept, so that the next run need not build them.
set -euo pipefail
cd "$(dirname "$0")/../.."

programs=${1:?scenario-kill-taskmanager.sh PROGRAMS}
work=$(mktemp -d)
project=levada-it-$$
compose=(docker-compose)
docker compose version >/dev/null 2>&1 && compose=(docker compose)
export LEVADA_TAG=test LEVADA_PORT="" LEVADA_HTTP_PORT="" LEVADA_HEARTBEAT_INTERVAL=500ms LEVADA_HEARTBEAT_TIMEOUT=4s

cluster() { timeout 120 "${compose[@]}" -p "$project" -f deploy/compose.yaml "$@"; }
inside() { timeout 120 "${compose[@]}" -p "$project" -f deploy/compose.yaml exec -T "$@"; }
say() { echo "compose: $*"; }
fail() {
  say "FAILED: $*" >&2
  cluster logs --no-color --tail 40 >&2 || true
  exit 1
}
clean() {
  cluster down --volumes --remove-orphans --timeout 2 >"$work/down.log" 2>&1 || cat "$work/down.log" >&2
  docker image prune --force --filter label=levada.image=1 >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap clean EXIT

# wait_for SECONDS WHAT COMMAND...: until the command succeeds.
wait_for() {
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$end" ] || fail "waited in vain for $what"
    sleep 0.3
  done
}
describe() { inside jobmanager levada describe "$@" --json; }
# number JSON PATH: a number out of a status.
number() { python3 -c 'import json,sys; v=json.load(open(sys.argv[1]))
for k in sys.argv[2].split("."): v=v[k]
print(len(v) if isinstance(v,list) else v)' "$1" "$2"; }
registered() { describe >"$work/cluster.json" && [ "$(number "$work/cluster.json" task_managers)" = "$1" ]; }
status() { describe "$job" >"$work/job.json" && [ "$(number "$work/job.json" "$1")" -ge "$2" ]; }

deploy/images.sh "$programs" "$LEVADA_TAG"
say "starting the cluster"
cluster up -d >"$work/up.log" 2>&1 || { cat "$work/up.log" >&2; fail "the cluster did not start"; }
wait_for 60 "two TaskManagers" registered 2
wait_for 60 "the store" inside s3 python3 -c "import urllib.request as r; r.urlopen('http://127.0.0.1:9000/levada', timeout=2)"

job=$(inside jobmanager levada submit /dev/stdin <integration-tests/compose/stream-a.yaml) || fail "the job was refused"
wait_for 60 "two checkpoints" status checkpoints.completed 2
inside jobmanager levada state verify "s3://levada/checkpoints/$job" >"$work/verify.log" 2>&1 || {
  cat "$work/verify.log" >&2
  fail "the newest checkpoint is damaged"
}
say "killing taskmanager-2"
cluster kill -s SIGKILL taskmanager-2 >/dev/null 2>&1
wait_for 60 "the loss of the TaskManager" registered 1
cluster up -d taskmanager-2 >/dev/null 2>&1
wait_for 60 "the job's restart" status restarts 1
inside jobmanager levada wait "$job" >"$work/wait.log" 2>&1 || { cat "$work/wait.log" >&2; fail "the job did not finish"; }

inside taskmanager-1 bash -c 'cat /out/stream-a/*' | sort >"$work/found"
awk 'BEGIN {
  for (window = 0; window < 100; window++) for (key = 0; key < 100; key++)
    printf "{\"k\":\"k%02d\",\"start\":\"1970-01-01T00:%02d:%02d.000Z\",\"n\":100,\"total\":%d}\n",
      key, int(window / 6), window % 6 * 10, 1000000 * window + 100 * key + 495000
}' | sort >"$work/expected"
cmp -s "$work/expected" "$work/found" || {
  diff "$work/expected" "$work/found" | head -n 5 >&2
  fail "the output is not exact: $(wc -l <"$work/found") of $(wc -l <"$work/expected") rows"
}
[ "$(inside taskmanager-1 bash -c 'ls -A /out/stream-a | grep -c "^[.]" || true')" = 0 ] || fail "files that are not final were left"
say "killed with $(number "$work/job.json" checkpoints.completed) checkpoints completed; 10,000 rows exact"

#!/bin/sh
# Builds the image, brings compose.yaml up with it, and walks through docs/upgrades.md: backup, upgrade, rollback of the
# program alone and with tables, TLS. Each step says what it found; the first that fails ends it.
# make image-test. ENGINE (podman or docker) and COMPOSE are found; BUILD_OPTIONS go to the build, for a cache of packages
# say; BUILT=1 takes the image qplan as it is. Base images are those of .env (docker/pin.sh); without them, and with debootstrap, docker/base.sh makes some.
set -eu
say() { echo "image-test: $*"; }
skip() { say "SKIPPED: $*"; exit 0; }
project=qplan-test
engine=${ENGINE:-}
[ -n "$engine" ] || for engine in docker podman none; do "$engine" info > /dev/null 2>&1 && break; done
[ "$engine" != none ] || skip "no engine answers: install podman, or start docker"
compose=${COMPOSE:-}
[ -n "$compose" ] || if "$engine" compose version > /dev/null 2>&1; then compose="$engine compose"; else compose=$engine-compose; fi
command -v "${compose%% *}" > /dev/null || skip "no $compose: install podman-compose, or docker's plugin"
command -v openssl > /dev/null || skip "no openssl, which makes a certificate"
[ -d /run/systemd/system ] || export DISABLE_HC_SYSTEMD=true # podman's timers; health is asked for below

work=$(mktemp -d "${TMPDIR:-/var/tmp}/image-test.XXXXXX")
port=${QPLAN_PORT:-18000}
export QPLAN_PORT="$port" TLS_PORT="${TLS_PORT:-18443}" QPLAN_IMAGE=qplan
python=$PWD/.venv/bin/python
url=http://127.0.0.1:$port
compose() { (cd "$work/source" && $compose -p $project "$@") > "$work/compose.log" 2>&1 || { cat "$work/compose.log" >&2; return 1; }; }
containers() { "$engine" ps -aq --filter "label=com.docker.compose.project=$project" --filter "label=com.docker.compose.service=$1"; }
first() { containers "$1" | head -n 1; }
finish() {
    code=$?
    if [ -d "$work/source" ]; then # before it nothing was started
        if [ "$code" != 0 ]; then for one in api database; do "$engine" logs --tail 20 "$(first $one)" >&2 || true; done; fi
        [ -n "${KEEP:-}" ] || compose -f compose.yaml -f compose.tls.yaml down -v || true
    fi
    [ -n "${KEEP:-}" ] || rm -rf "$work"
    exit "$code"
}
trap finish EXIT

ready() { # until the server is ready, at most two minutes
    tries=0
    until curl -sSf -o /dev/null "$@" 2> "$work/curl.log"; do
        tries=$((tries + 1))
        [ "$tries" -lt 120 ] || { cat "$work/curl.log" >&2; return 1; }
        sleep 1
    done
}
healthy() { # the check that compose.yaml has, asked for by hand where nobody does
    tries=0
    until [ "$("$engine" inspect "$(first "$1")" --format '{{.State.Health.Status}}')" = healthy ]; do
        [ "$engine" != podman ] || "$engine" healthcheck run "$(first "$1")" > /dev/null 2>&1 || true
        tries=$((tries + 1))
        [ "$tries" -lt 60 ] || return 1
        sleep 1
    done
}
refused() { # until the server says that its tables are of another version, at most a minute
    tries=0
    until "$engine" logs --tail 20 "$(first api)" 2>&1 | grep -q "of another version"; do
        tries=$((tries + 1))
        [ "$tries" -lt 60 ] || return 1
        sleep 1
    done
}
replace() { # IMAGE: stop the servers, start those of an image, then the workers
    export QPLAN_IMAGE="$1"
    compose stop -t 30 api
    compose stop -t 30 worker
    # shellcheck disable=SC2046 - several numbers
    "$engine" rm -f $(containers api) $(containers worker) > /dev/null
    compose up -d
}
walk() { QPLAN_TOKEN=$token PYTHONPATH=. "$python" docker/walk.py "$1" "$url" "$work/kept.json"; }
qplan() { "$engine" exec "$(first api)" qplan "$@"; }
once() { "$engine" run --rm --user root -v "${project}_data:/data" -v "$work/backup:/backup" --entrypoint sh qplan -c "$1"; }
psql() { "$engine" exec -i "$(first database)" "$@"; }

if [ -f .env ]; then set -a && . ./.env && set +a; fi
if [ -z "${PYTHON_IMAGE:-}" ]; then
    command -v debootstrap > /dev/null || skip "no base images: run docker/pin.sh, or install debootstrap"
    ENGINE=$engine docker/base.sh "${BASE:-$work/base}" > "$work/base.env"
    set -a && . "$work/base.env" && set +a
fi
say "$engine, $compose, $PYTHON_IMAGE"

# shellcheck disable=SC2086 - options
[ -n "${BUILT:-}" ] || "$engine" build ${BUILD_OPTIONS:-} --build-arg PYTHON_IMAGE="$PYTHON_IMAGE" -t qplan . > "$work/build.log" 2>&1 || { tail -n 20 "$work/build.log" >&2; exit 1; }
for tables in "" 1; do
    "$engine" build --build-arg TABLES=$tables -f docker/next.Dockerfile -t "qplan:next$tables" . > "$work/build.log" 2>&1 || { tail -n 20 "$work/build.log" >&2; exit 1; }
done
say "built: $("$engine" run --rm qplan --version), next: $("$engine" run --rm qplan:next --version)"

mkdir -p "$work/source/docker" "$work/backup"
cp compose.yaml compose.tls.yaml Dockerfile "$work/source"
cp docker/pg_service.conf docker/Caddyfile "$work/source/docker"
token=$(cd "$work/source" && "$OLDPWD/docker/secrets.sh" | sed 's/.*: //')
compose up -d
ready "$url/v1/health/ready"
for service in database scheduler api; do healthy $service; done
say "up and healthy: database, scheduler, api with its own user $("$engine" exec "$(first api)" id -un)"
! "$engine" exec "$(first api)" touch /root-is-writable 2> /dev/null
address=$("$engine" port "$(first api)" | sed 's/.*-> //;s/:.*//')
[ "$address" = 127.0.0.1 ] || { say "the port is on $address"; exit 1; }
qplan doctor --host 127.0.0.1 > "$work/doctor"
grep -q 'confinement *good' "$work/doctor"
walk fill
say "calibrated, planned and exported through the cluster; the sandbox confines; the port is on 127.0.0.1 alone"

psql pg_dump -U qplan -Fc qplan > "$work/backup/rows"
once 'qplan backup /backup/files --data /data' > /dev/null
say "backup: $(find "$work/backup/files" -type f | wc -l) files, $(wc -c < "$work/backup/rows") bytes of rows"

replace qplan:next
ready "$url/v1/health/ready"
walk check
say "upgrade: $(qplan --version) finds all of it"
replace qplan
ready "$url/v1/health/ready"
walk check
say "rollback of the program alone: $(qplan --version) finds all of it"

replace qplan:next1
ready "$url/v1/health/ready"
walk check
replace qplan
refused || { say "an older program took newer tables: $("$engine" logs --tail 20 "$(first api)" 2>&1)"; exit 1; }
say "an older program refuses newer tables"
compose stop -t 30 api
psql dropdb -U qplan --force qplan
psql createdb -U qplan -E UTF8 -T template0 qplan
psql pg_restore -U qplan -d qplan --exit-on-error < "$work/backup/rows"
once 'mkdir /data/.away && for one in /data/*; do mv "$one" /data/.away; done && cp -R /backup/files/. /data && chown -R --reference=/home/qplan /data && rm -r /data/.away'
replace qplan
ready "$url/v1/health/ready"
qplan doctor --deep --host 127.0.0.1 > "$work/doctor"
grep -q 'digests *good' "$work/doctor"
walk check
say "rollback with tables: the backup is restored, every file is what its digest says"

openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost \
    -keyout "$work/source/secrets/tls_key" -out "$work/source/secrets/tls_certificate" 2> /dev/null
chmod 644 "$work"/source/secrets/tls_*
compose -f compose.yaml -f compose.tls.yaml up -d
ready --cacert "$work/source/secrets/tls_certificate" "https://localhost:$TLS_PORT/v1/health/ready"
key=$(sed 's/.*"plan": "\([^"]*\)".*/\1/' "$work/kept.json")
curl -sSf --cacert "$work/source/secrets/tls_certificate" -H "Authorization: Bearer $token" -o "$work/plan" \
    "https://localhost:$TLS_PORT/v1/plans/$key"
grep -q "$key" "$work/plan"
say "TLS: the plan comes through the proxy, whose certificate holds"
say "passed"

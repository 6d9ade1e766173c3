#!/bin/sh
# Writes the digests that the images' tags have now into .env, for compose.yaml, and leaves its other lines as they are:
# docker/pin.sh, from the root of the sources. An upgrade of a base image is this again, and a look at what changed.
# Asks docker with buildx; without it, or with podman (ENGINE=podman), it pulls each image and looks at that.
set -eu
engine=${ENGINE:-}
[ -n "$engine" ] || for engine in docker podman none; do "$engine" info > /dev/null 2>&1 && break; done
[ "$engine" != none ] || { echo "docker/pin.sh: no engine answers: install podman, or start docker" >&2; exit 1; }
digest() {
    "$engine" buildx imagetools inspect "$1" --format '{{.Manifest.Digest}}' 2> /dev/null && return
    "$engine" pull --quiet "$1" > /dev/null
    "$engine" image inspect "$1" --format '{{index .RepoDigests 0}}' | sed 's/.*@//'
}
library=docker.io/library
python=$(digest $library/python:3.11-slim)
postgres=$(digest $library/postgres:15)
caddy=$(digest $library/caddy:2)
touch .env
{
    grep -v '^PYTHON_IMAGE=\|^POSTGRES_IMAGE=\|^CADDY_IMAGE=' .env || true
    for image in "python@$python" "postgres@$postgres" "caddy@$caddy"; do
        case $image in *@sha256:*) ;; *) echo "docker/pin.sh: $engine tells no digest of $image" >&2; exit 1 ;; esac
        printf '%s_IMAGE=%s/%s\n' "$(echo "${image%@*}" | tr a-z A-Z)" $library "$image"
    done
} > .env.new
mv .env.new .env
grep _IMAGE= .env

#!/bin/sh
# Writes the digests that the images' tags have now into .env, for compose.yaml, and leaves its other lines as they are:
# docker/pin.sh, from the root of the sources. An upgrade of a base image is this again, and a look at what changed.
set -eu
digest() { docker buildx imagetools inspect "$1" --format '{{.Manifest.Digest}}'; }
python=$(digest python:3.11-slim)
postgres=$(digest postgres:15)
touch .env
{
    grep -v '^PYTHON_IMAGE=\|^POSTGRES_IMAGE=' .env || true
    printf 'PYTHON_IMAGE=python@%s\nPOSTGRES_IMAGE=postgres@%s\n' "$python" "$postgres"
} > .env.new
mv .env.new .env
grep _IMAGE= .env

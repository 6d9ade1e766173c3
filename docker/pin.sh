#!/bin/sh
# Writes the digests that the images' tags have now into .env, for compose.yaml: docker/pin.sh, from the root of the
# sources. An upgrade of a base image is this again, and a look at what changed in .env.
set -eu
digest() { docker buildx imagetools inspect "$1" --format '{{.Manifest.Digest}}'; }
python=$(digest python:3.11-slim)
postgres=$(digest postgres:15)
printf 'PYTHON_IMAGE=python@%s\nPOSTGRES_IMAGE=postgres@%s\n' "$python" "$postgres" > .env
cat .env

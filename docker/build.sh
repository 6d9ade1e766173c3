#!/bin/sh
# Makes the environment that the image runs: docker/build.sh FOLDER, from the root of the sources.
set -eu
python3 -m venv "$1"
"$1/bin/python" -m pip install --no-cache-dir --disable-pip-version-check --quiet --constraint constraints.txt '.[service,cluster]'
"$1/bin/qplan" --version

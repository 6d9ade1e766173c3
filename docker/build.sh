#!/bin/sh
# Makes the environment that the image runs: docker/build.sh FOLDER, from the root of the sources.
# With docker/requirements.txt of `make hashes`, every package has to have the hash it had then.
set -eu
python3 -m venv "$1"
install() {
    "$HOME_OF_IMAGE/bin/python" -m pip install --no-cache-dir --disable-pip-version-check --quiet "$@"
}
HOME_OF_IMAGE=$1
if [ -f docker/requirements.txt ]; then
    install --require-hashes --requirement docker/requirements.txt
    install --no-deps .
else
    install --constraint constraints.txt '.[service,cluster]'
fi
"$1/bin/qplan" --version

#!/bin/sh
# Makes the environment that the image runs: docker/build.sh FOLDER, from the root of the sources.
# With docker/requirements.txt of `make hashes`, every package has to have the hash it had then; without it the versions
# of constraints.txt are installed, and the build says so. REQUIRE_HASHES=1 refuses that.
set -eu
python3 -m venv "$1"
install() {
    "$HOME_OF_IMAGE/bin/python" -m pip install --no-cache-dir --disable-pip-version-check --quiet "$@"
}
HOME_OF_IMAGE=$1
if [ -f docker/requirements.txt ]; then
    install --require-hashes --requirement docker/requirements.txt
    install --no-deps .
elif [ "${REQUIRE_HASHES:-}" = 1 ]; then
    echo "docker/build.sh: there is no docker/requirements.txt with hashes: run make hashes" >&2
    exit 1
else
    echo "docker/build.sh: no docker/requirements.txt, so no hash is required: make hashes writes it" >&2
    install --constraint constraints.txt '.[service,cluster]'
fi
"$1/bin/qplan" --version

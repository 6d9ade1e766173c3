#!/bin/sh
# Makes secrets/ for compose.yaml, once: the database's password, its address, and no tokens yet: docker/secrets.sh,
# from the root of the sources. A database that is there already keeps its password: POSTGRES_PASSWORD=... docker/secrets.sh.
# Then `qplan token NAME --scope plan`, its line into secrets/tokens.
set -eu
umask 077
mkdir secrets
password=${POSTGRES_PASSWORD:-$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')}
printf %s "$password" > secrets/database_password
printf 'postgresql://qplan:%s@database/qplan' "$password" > secrets/database_url
: > secrets/tokens
# The containers' users read the files, each mounted by itself; on this machine the folder is its owner's alone.
chmod 644 secrets/*

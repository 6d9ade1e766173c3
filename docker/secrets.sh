#!/bin/sh
# Makes what is not there yet of secrets/ for compose.yaml: the database's password, its address, and a first token, which
# is printed once and kept as its sha256 alone: docker/secrets.sh, from the root of the sources. What is there stays.
# A database that is there already keeps its password: POSTGRES_PASSWORD=... docker/secrets.sh.
# Further tokens: `qplan token NAME --scope plan`, its line into secrets/tokens.
set -eu
umask 077
mkdir -p secrets
chmod 700 secrets
random() { od -An -N"$1" -tx1 /dev/urandom | tr -d ' \n'; }
if [ ! -s secrets/database_password ]; then
    printf %s "${POSTGRES_PASSWORD:-$(random 24)}" > secrets/database_password
fi
if [ ! -s secrets/database_url ]; then
    printf 'postgresql://qplan:%s@database/qplan' "$(cat secrets/database_password)" > secrets/database_url
fi
if [ ! -s secrets/tokens ]; then
    token=$(random 32)
    printf 'first:write+metrics:%s\n' "$(printf %s "$token" | sha256sum | cut -c1-64)" > secrets/tokens
    echo "the token 'first', which is kept nowhere: $token"
fi
# The containers' users read the files, each mounted by itself; on this machine the folder is its owner's alone.
chmod 644 secrets/*

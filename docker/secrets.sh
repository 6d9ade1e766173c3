#!/bin/sh
# Makes secrets/ for compose.yaml, once: a password of the database, its address, and no tokens yet:
# docker/secrets.sh, from the root of the sources. Then `qplan token NAME --scope plan`, its line into secrets/tokens.
set -eu
umask 022
mkdir secrets
password=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
printf %s "$password" > secrets/database_password
printf 'postgresql://qplan:%s@database/qplan' "$password" > secrets/database_url
: > secrets/tokens
chmod 711 secrets  # the containers' users read the files; nobody else's lists the folder

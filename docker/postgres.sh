#!/bin/sh
# Starts PostgreSQL in the base image of docker/base.sh, with the variables and the way of the image postgres: a first
# server that only a socket reaches makes the user and the database. As there, PGHOST does not count meanwhile.
set -eu
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    initdb --username="$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" --auth-host=scram-sha-256 --auth-local=trust
    echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
    echo "listen_addresses = '*'" >> "$PGDATA/postgresql.conf"
    shift
    pg_ctl -D "$PGDATA" -o "$* -c listen_addresses=" -w start
    PGHOST='' PGHOSTADDR='' psql --username="$POSTGRES_USER" --dbname=postgres -c "CREATE DATABASE \"$POSTGRES_DB\""
    pg_ctl -D "$PGDATA" -m fast -w stop
    set -- postgres "$@"
fi
exec "$@"

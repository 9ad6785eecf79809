#!/bin/sh
# Makes the database of POSTGRES_DB, POSTGRES_USER and POSTGRES_PASSWORD on the first start, then becomes the server.
set -eu
if [ ! -f "$PGDATA/PG_VERSION" ]; then
    printf '%s' "$POSTGRES_PASSWORD" >/tmp/password
    initdb -D "$PGDATA" -U "$POSTGRES_USER" -A scram-sha-256 --auth-local=trust --pwfile /tmp/password -E UTF8 >/dev/null
    rm /tmp/password
    echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
    echo "CREATE DATABASE \"$POSTGRES_DB\"" | postgres --single -D "$PGDATA" postgres >/dev/null
fi
exec "$@" -c 'listen_addresses=*'

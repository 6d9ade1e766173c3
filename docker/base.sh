#!/bin/sh
# Base images where no registry is reached: docker/base.sh FOLDER, as root, with debootstrap and podman (or ENGINE=docker).
# Makes localhost/qplan-python, -postgres and -caddy of Debian's packages. They stand for python:3.11-slim, postgres:15
# and caddy:2 in tests of the images; nobody should run them.
set -eu
engine=${ENGINE:-podman}
root=$1
if [ ! -f "$root/etc/debian_version" ]; then
    packages=ca-certificates,python3,python3-venv,postgresql-15,caddy
    debootstrap --variant=minbase --include="$packages" bookworm "$root" > "$root.log" 2>&1 || { tail "$root.log" >&2; exit 1; }
fi
ln -sf python3 "$root/usr/bin/python"
install -m 755 docker/postgres.sh "$root/usr/local/bin/postgres.sh"
install -d -o 100 -g 102 -m 755 "$root/var/lib/postgresql/data"
chroot "$root" chown postgres:postgres /var/lib/postgresql/data
import() { # NAME, then changes
    name=$1; shift
    tar -C "$root" --exclude=./var/cache/apt --exclude=./var/lib/apt -c . | "$engine" import "$@" - "localhost/qplan-$name" > "$root.$name"
}
import python -c 'CMD ["python3"]'
postgres=$(ls -d "$root"/usr/lib/postgresql/*/bin | sed "s|^$root||")
import postgres -c "ENV PATH=$postgres:/usr/local/bin:/usr/bin:/bin" -c 'ENV PGDATA=/var/lib/postgresql/data' \
    -c 'ENTRYPOINT ["postgres.sh"]' -c 'CMD ["postgres"]' -c 'VOLUME /var/lib/postgresql/data'
import caddy -c 'CMD ["caddy", "run", "--config", "/etc/caddy/Caddyfile", "--adapter", "caddyfile"]'
cat <<END
PYTHON_IMAGE=localhost/qplan-python
POSTGRES_IMAGE=localhost/qplan-postgres
CADDY_IMAGE=localhost/qplan-caddy
END

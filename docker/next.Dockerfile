# The image of the next version, for docker/test.sh: it says so of itself, and with TABLES=1 it has tables of its own.
FROM qplan
ARG TABLES=
USER root
COPY docker/next_tables.py /tmp/next_tables.py
RUN package=$(python -c 'import quant_planner_service as found; print(found.__path__[0])') \
    && sed -i 's/^VERSION.* = "[0-9.]*"/VERSION = "99.0.0"/' "$package/../planner/version.py" \
    && if [ -n "$TABLES" ]; then cp /tmp/next_tables.py "$package/migrations/versions/v9999_next.py"; fi
USER qplan

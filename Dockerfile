# Two stages: docker/build.sh makes the environment in the first, the second holds only what runs.
# PYTHON_IMAGE is an image by its digest: docker/pin.sh finds it, compose.yaml passes it. Without it, it is what the tag
# has today. REQUIRE_HASHES=1 refuses packages without hashes (make hashes), as compose.yaml does.
# A test runs docker/build.sh and the command below without an engine.
#   docker build --build-arg PYTHON_IMAGE=python@sha256:... --build-arg REQUIRE_HASHES=1 -t qplan .
#   docker run --read-only --tmpfs /tmp -p 127.0.0.1:8000:8000 -v qplan:/data -e QPLAN_TOKENS=... qplan
# compose.yaml has the setup of a company.
ARG PYTHON_IMAGE=python:3.11-slim
FROM $PYTHON_IMAGE AS build
ARG REQUIRE_HASHES=
WORKDIR /source
COPY pyproject.toml setup.py constraints.txt README.md LICENSE ./
COPY docker docker
COPY planner planner
COPY api api
COPY targets targets
COPY examples/digits examples/digits
RUN docker/build.sh /opt/qplan

FROM $PYTHON_IMAGE
COPY --from=build /opt/qplan /opt/qplan
RUN useradd --create-home --uid 10001 qplan && install -d -o qplan /data
USER qplan
WORKDIR /home/qplan
ENV PATH=/opt/qplan/bin:$PATH QPLAN_DATA=/data PYTHONDONTWRITEBYTECODE=1
VOLUME /data
EXPOSE 8000
# Of docker's image format alone: podman build --format docker keeps it, compose.yaml has one of its own.
HEALTHCHECK CMD ["python", "-m", "quant_planner_service.server.probe", "8000", "/v1/health/ready"]
ENTRYPOINT ["qplan"]
CMD ["serve", "--host", "0.0.0.0"]

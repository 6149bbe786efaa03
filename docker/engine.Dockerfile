# SGLang, pinned, with our plugin. Needs an NVIDIA runtime; SGLang compiles kernels, hence the devel image.
# DEVICE=cpu makes the engine of a host without a GPU, on any Debian or Ubuntu whose Python is 3.11 or newer.
ARG CUDA=nvidia/cuda:13.0.1-devel-ubuntu24.04@sha256:7d2f6a8c2071d911524f95061a0db363e24d27aa51ec831fcccf9e76eb72bc92
FROM ${CUDA}
ARG DEVICE=cuda
# Where a CPU build of torch lies (docs/engine.md); for DEVICE=cpu alone.
ARG COSERVE_TORCH_INDEX=
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 python3-venv python3-dev build-essential \
 && rm -rf /var/lib/apt/lists/*
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /app
# Another SGLang than the default, e.g. 0.5.16 (docs/engine.md).
ARG COSERVE_SGLANG=
COPY requirements/engine-cuda.txt requirements/engine-cpu.txt requirements/
COPY requirements/engine-cuda-0.5.16.txt requirements/engine-cpu-0.5.16.txt requirements/
COPY coserve/setup coserve/setup
RUN python3 -m venv /venv \
 && if [ "$DEVICE" = cpu ]; then python3 -m coserve.setup.engine_env /venv; \
    else /venv/bin/pip install --require-hashes -r requirements/engine-${DEVICE}${COSERVE_SGLANG:+-$COSERVE_SGLANG}.txt; fi
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY coserve coserve
COPY api api
COPY service service
COPY engine_adapter engine_adapter
COPY kernels kernels
COPY docker/engine_entry.py docker/
# Profiles are measured, and kernels compiled, into volumes: a volume begins with the owner of its folder here.
RUN useradd --uid 10001 --create-home app \
 && mkdir -p /profiles /home/app/.cache && chown app /profiles /home/app/.cache \
 && python3 coserve/setup/engine_link.py /venv/bin/python /app --${DEVICE}
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 COSERVE_ENGINE_DEVICE=${DEVICE}
USER app
EXPOSE 30000
ENTRYPOINT ["python", "docker/engine_entry.py"]

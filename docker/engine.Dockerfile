# SGLang, pinned, with our plugin. Needs an NVIDIA runtime; SGLang compiles kernels, hence the devel image.
FROM nvidia/cuda:13.0.1-devel-ubuntu24.04
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 python3-venv python3-dev build-essential \
 && rm -rf /var/lib/apt/lists/*
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /app
COPY requirements/engine-cuda.in requirements/
RUN python3 -m venv /venv && /venv/bin/pip install -r requirements/engine-cuda.in
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY coserve coserve
COPY engine_adapter engine_adapter
COPY kernels kernels
COPY docker/engine_entry.py docker/
RUN useradd --uid 10001 --create-home app && python3 coserve/setup/engine_link.py /venv/bin/python /app
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1
USER app
EXPOSE 30000
ENTRYPOINT ["python", "docker/engine_entry.py"]

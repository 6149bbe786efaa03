# The gateway, the workers, beat and the migration job: one image, the command decides.
ARG PYTHON=python:3.12-slim@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea
FROM ${PYTHON} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /app
COPY requirements/service.txt requirements/service.in requirements/
RUN python -m venv /venv && /venv/bin/pip install --require-hashes -r requirements/service.txt
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY api api
COPY service service
COPY coserve coserve
COPY gateway gateway
COPY batch batch
COPY store store
COPY engine_adapter engine_adapter
COPY kernels kernels
COPY migrations migrations
RUN /venv/bin/pip install --no-deps --no-build-isolation --config-settings editable_mode=compat -e . \
 && /venv/bin/python -m compileall -q api service coserve gateway batch store engine_adapter kernels migrations

FROM ${PYTHON}
RUN useradd --uid 10001 --create-home app && mkdir -p /data && chown app /data
COPY --from=build /venv /venv
COPY --from=build /app /app
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 COSERVE_HOME=/data
USER app
WORKDIR /app
EXPOSE 8080
ENTRYPOINT ["coserve", "serve"]
CMD ["gateway"]

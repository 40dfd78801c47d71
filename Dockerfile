# The gateway alone. The first stage builds, the second has its result: no pip cache, no source tree, no compiler.
# compose.yaml runs it; docs/install.md explains both. Pin the base by its digest:
#     docker build --build-arg PYTHON=python@sha256:… --build-arg COMMIT=$(git rev-parse --short=12 HEAD) .
ARG PYTHON=python:3.13-slim

FROM ${PYTHON} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
# What the lock has, by its hashes; from wheels, so that nothing of it runs here.
COPY requirements.lock requirements-build.lock ./
RUN python -m venv --without-pip /opt/model-gateway \
    && python -m pip --python /opt/model-gateway/bin/python install --only-binary :all: --require-hashes --requirement requirements.lock \
    && python -m pip install --only-binary :all: --require-hashes --requirement requirements-build.lock
COPY setup.py setup.cfg pyproject.toml README.md LICENSE ./
COPY gateway gateway
ARG COMMIT
ARG PROJECT_URL
RUN GATEWAY_COMMIT="${COMMIT}" PROJECT_URL="${PROJECT_URL}" \
    python -m pip wheel --no-deps --no-build-isolation --wheel-dir /src/wheel . \
    && python -m pip --python /opt/model-gateway/bin/python install --no-index --no-deps /src/wheel/*.whl

FROM ${PYTHON}
# A volume that is new gets the owner and the mode of this directory.
RUN install -d -m 0700 -o 10001 -g 10001 /var/lib/gateway
COPY config/channels.yaml /etc/gateway/channels.example.yaml
COPY --from=build /opt/model-gateway /opt/model-gateway
ENV PATH=/opt/model-gateway/bin:${PATH} \
    HOME=/var/lib/gateway \
    GATEWAY_CONFIG=/etc/gateway/channels.yaml \
    GATEWAY_STATE_DIR=/var/lib/gateway \
    CREDENTIALS_DIRECTORY=/run/secrets
WORKDIR /var/lib/gateway
VOLUME /var/lib/gateway
USER 10001:10001
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD ["/opt/model-gateway/bin/python", "-I", "-c", "import sys, http.client as h; c = h.HTTPConnection('127.0.0.1', 8080, timeout=4); c.request('GET', '/healthz'); sys.exit(c.getresponse().status != 200)"]
ENTRYPOINT ["/opt/model-gateway/bin/python", "-I", "-m", "gateway"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8080"]

# A server for one translator, which is part of the image together with its CTranslate2 folder (made
# and compared with the model when the image is built). It runs as a user without rights, and writes
# to /tmp only:
#
#   docker build --build-arg MODEL=runs/multi30k-de-en --build-arg NAME=de-en -t translator .
#   docker run --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges \
#     --env CLEARHEAD_API_KEYS --publish 127.0.0.1:8080:8080 translator --workers 4
# The digest stands for one image on every processor; BASE names another, such as a mirror's.
ARG BASE=python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b
FROM ${BASE} AS built
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PATH=/opt/clearhead/bin:$PATH
WORKDIR /build
RUN python -m venv /opt/clearhead
COPY constraints.txt Dockerfile.requirements pyproject.toml README.md LICENSE ./
COPY src src
# Where pip finds a torch without CUDA; without it, the image is some gigabytes larger. torch is
# held to its version: its hash depends on the index.
ARG TORCH_INDEX=""
# `.` is this clone, and torch has its version from constraints.txt.
# hadolint ignore=DL3013
RUN pip install --require-hashes --requirement Dockerfile.requirements \
    && pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "$(grep '^torch==' constraints.txt)" \
    && pip install --no-deps --no-build-isolation .
ARG MODEL=src/clearhead/shipped/copy-task
COPY ${MODEL} /opt/model
ENV CLEARHEAD_CACHE=/opt/engine
RUN clearhead translate /opt/model --engine ctranslate2 < /dev/null

FROM ${BASE}
ARG NAME=en-eo
ENV NAME=$NAME CLEARHEAD_CACHE=/opt/engine PATH=/opt/clearhead/bin:$PATH PYTHONDONTWRITEBYTECODE=1 \
    PYTHONSAFEPATH=1
RUN useradd --system --uid 10001 --no-create-home server
COPY --from=built /opt /opt
USER 10001
EXPOSE 8080
HEALTHCHECK CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8080/ready')"]
# exec: SIGTERM must reach the server, which then finishes what it has accepted.
ENTRYPOINT ["/bin/sh", "-c", "exec clearhead serve \"$NAME=/opt/model\" --host 0.0.0.0 \"$@\"", "clearhead"]

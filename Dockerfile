# The local Kinesis as an image: docker run -p 127.0.0.1:4567:4567 IMAGE --stream orders:4
FROM python:3.13-slim AS build
WORKDIR /build
COPY pyproject.toml README.md LICENSE ./
COPY scripts/package_metadata.py scripts/
COPY src src
RUN python -m venv /opt/shardway && /opt/shardway/bin/pip install --no-cache-dir '.[local,cli]'

FROM python:3.13-slim
COPY --from=build /opt/shardway /opt/shardway
USER 65532:65532
ENV HOME=/tmp
EXPOSE 4567
HEALTHCHECK --interval=2s --timeout=2s --start-period=10s CMD ["/opt/shardway/bin/python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:4567/_shardway/health')"]
ENTRYPOINT ["/opt/shardway/bin/shardway", "local", "--host", "0.0.0.0"]

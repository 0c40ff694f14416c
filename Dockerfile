# `holdfast serve` from this checkout: docker build --tag holdfast .
# The memory is in /data, or on the server that HOLDFAST_ARCHIVE__PATH names: postgresql://USER@HOST/DATABASE
FROM python:3.13-slim AS build
# wordllama has no wheel for Linux on ARM, and is compiled there.
RUN apt-get update && apt-get install --yes --no-install-recommends g++
COPY LICENSE README.md pyproject.toml /src/
COPY src /src/src
RUN python -m venv /opt/holdfast && /opt/holdfast/bin/pip install --no-cache-dir '/src[anthropic,encrypted,local,openai,otel,postgres,server]'

FROM python:3.13-slim
LABEL org.opencontainers.image.title="Holdfast" org.opencontainers.image.licenses="MIT"
COPY --from=build /opt/holdfast /opt/holdfast
RUN useradd --create-home --uid 10001 holdfast && install --directory --owner holdfast --mode 700 /data
USER holdfast
WORKDIR /data
VOLUME /data
ENV HOLDFAST_HOME=/data HOLDFAST_SERVER__LOG_FORMAT=json PATH=/opt/holdfast/bin:$PATH PYTHONDONTWRITEBYTECODE=1
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --retries=3 CMD ["holdfast", "serve", "--check"]
ENTRYPOINT ["holdfast"]
CMD ["serve"]

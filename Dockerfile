# An image with nova and Spark: docker build -t nova-placement:0.1.0 .
# Runs one command: docker run --rm -v "$PWD:/work" -w /work nova-placement:0.1.0 plan scenario.yaml -o plan
FROM python:3.12-slim-bookworm

RUN useradd --create-home --uid 1000 nova && mkdir /run/nova /site && chown nova /run/nova /site
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir ".[spark,jre]"
USER nova
WORKDIR /home/nova
ENTRYPOINT ["nova"]
CMD ["--help"]

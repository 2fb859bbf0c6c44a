# The command line in a container: docker build -t rpl_agent . && docker run --rm -v "$PWD/logs:/logs" rpl_agent train rpl/Betting-25-v0 --budget 300 --log-dir /logs
FROM python:3.11-slim AS build
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN python -m venv /venv && /venv/bin/pip install --no-cache-dir -c /src/constraints.txt '/src[plot,report]'

FROM python:3.11-slim
COPY --from=build /venv /venv
ENTRYPOINT ["/venv/bin/rpl"]
CMD ["--help"]

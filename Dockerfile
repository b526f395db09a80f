# The dashboard and the shell in one image: docker build -t m2st --build-arg TORCH_INDEX=… .
# TORCH_INDEX is the address of PyTorch's builds for CPUs or for a version of CUDA, as pytorch.org names it under "Start
# locally". Without it, the usual build is taken: it runs on CPUs and on NVIDIA GPUs, and is several times as large.
FROM python:3.12-slim-bookworm AS build
ARG TORCH_INDEX=""
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
RUN python -m venv /opt/m2st
ENV PATH=/opt/m2st/bin:$PATH
WORKDIR /source
COPY requirements.txt requirements-cluster.txt ./
RUN grep '^torch==' requirements.txt > torch.txt \
    && pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} -r torch.txt \
    && pip install -r requirements.txt -r requirements-cluster.txt
COPY pyproject.toml setup.py README.md LICENSE app.py serve.py ./
COPY .streamlit .streamlit
COPY pages pages
COPY m2st_core m2st_core
RUN pip install --no-deps . && python -m compileall -q /opt/m2st/lib

FROM python:3.12-slim-bookworm
LABEL org.opencontainers.image.title="Meta two-sample testing" org.opencontainers.image.licenses="MIT"
COPY --from=build /opt/m2st /opt/m2st
RUN useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin m2st \
    && install -d -o m2st -g m2st /store
# The root file system may be read-only: results go to /store, everything passing to /tmp.
ENV PATH=/opt/m2st/bin:$PATH \
    HOME=/tmp \
    M2ST_HOME=/store \
    M2ST_LOG=json \
    MALLOC_ARENA_MAX=2 \
    MALLOC_MMAP_THRESHOLD_=4194304 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /tmp
VOLUME /store
EXPOSE 8501
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=15s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8501/_stcore/health', timeout=10)"]
ENTRYPOINT ["m2st"]
CMD ["app", "--served", "--address", "0.0.0.0", "--port", "8501"]

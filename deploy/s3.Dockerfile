# An S3-compatible store for trying Levada out: moto, from PyPI. It holds everything in memory: not for data that matters.
#
# BASE: an image with python3, of the version that images.sh fetched packages for. The context is made by images.sh.
ARG BASE
FROM ${BASE}

COPY site /opt/moto
COPY s3.py /opt/s3.py

ENV PYTHONPATH=/opt/moto PYTHONUNBUFFERED=1
USER nobody
EXPOSE 9000
CMD ["python3", "/opt/s3.py"]

"""Serves S3 on port 9000 with one bucket, whose name is in BUCKET."""

import logging
import os
import signal
import threading

import boto3
from moto.server import ThreadedMotoServer

logging.getLogger("werkzeug").setLevel(logging.ERROR)

stopped = threading.Event()
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: stopped.set())

server = ThreadedMotoServer(ip_address="0.0.0.0", port=9000, verbose=False)
server.start()
client = boto3.client(
    "s3", endpoint_url="http://127.0.0.1:9000", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x"
)
client.create_bucket(Bucket=os.environ.get("BUCKET", "levada"))
print("ready", flush=True)
stopped.wait()
server.stop()

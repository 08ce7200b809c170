"""Submits a job file to a JobManager as a foreign client would, and prints the state in which the job ends."""

import sys

import grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from levada.v1 import client_pb2, client_pb2_grpc

address, path = sys.argv[1:]
channel = grpc.insecure_channel(address)
client = client_pb2_grpc.JobManagerStub(channel)

services = ProtoReflectionDescriptorDatabase(channel).get_services()
assert "levada.v1.JobManager" in services, services

try:
    client.SubmitJob(client_pb2.SubmitJobRequest(document="version: 1\nname: x\nsinks: {out: {inputs: [nothing], print: {}}}"))
    raise SystemExit("a job with a dangling input was accepted")
except grpc.RpcError as error:
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
    assert "nothing" in error.details(), error.details()

with open(path, encoding="utf-8") as file:
    request = client_pb2.SubmitJobRequest(document=file.read(), document_name=path, request_id="from-python")
job = client.SubmitJob(request).job_id
assert client.SubmitJob(request).job_id == job, "the same request made a second job"

for status in client.WatchJob(client_pb2.WatchJobRequest(job=job, period_ms=100)):
    last = status.job
print(client_pb2.JobState.Name(last.state), last.failure)

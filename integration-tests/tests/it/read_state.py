"""Reads a state's Arrow file and its Parquet export with pyarrow alone, and prints both as JSON lines.

Usage: read_state.py ARROW_FILE OFFSET LENGTH PARQUET_FILE
"""

import json
import sys

import pyarrow as pa
import pyarrow.parquet as pq


def lines(table):
    return [json.dumps({name: str(value) for name, value in row.items()}, sort_keys=True) for row in table.to_pylist()]


path, offset, length, parquet = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
with open(path, "rb") as file:
    file.seek(offset)
    reader = pa.ipc.open_file(pa.BufferReader(file.read(length)))
metadata = {key.decode(): value.decode() for key, value in reader.schema.metadata.items()}
print(json.dumps(metadata, sort_keys=True))
arrow = reader.read_all()
print(len(arrow))
print("\n".join(lines(arrow)))
print("\n".join(lines(pq.read_table(parquet))))

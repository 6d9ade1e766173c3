"""Spans that a collector was sent, decoded in an environment of their own.

`python otel_run.py FOLDER`: each file of the folder is the body of one request (OTLP over HTTP). It says the
spans as JSON.
"""

import gzip
import json
import sys
from pathlib import Path

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

spans = []
for path in sorted(Path(sys.argv[1]).iterdir()):
    data = path.read_bytes()
    request = ExportTraceServiceRequest()
    request.ParseFromString(gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data)
    for resource in request.resource_spans:
        about = {item.key: item.value.string_value for item in resource.resource.attributes}
        spans += [
            {
                "name": span.name,
                "trace": span.trace_id.hex(),
                "id": span.span_id.hex(),
                "parent": span.parent_span_id.hex(),
                "kind": span.kind,
                "service": about.get("service.name"),
                "attributes": {
                    item.key: item.value.string_value or item.value.int_value for item in span.attributes
                },
            }
            for scope in resource.scope_spans
            for span in scope.spans
        ]
sys.stdout.write(json.dumps(spans))

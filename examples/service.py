"""The service from Python: a model goes up, is planned and measured for a device, and comes back quantized.

Usage: `python examples/service.py MODEL.onnx SAMPLES.npz OUT [TARGET] [URL]`, beside `qplan serve`. A token,
where the server asks for one, is read from QPLAN_TOKEN.
"""

import os
import sys
from pathlib import Path

from planner.client import Client


def main(
    model: str, samples: str, out: str, target: str = "litert-int8", url: str = "http://127.0.0.1:8000"
) -> None:
    """Walk from the model to the file, with the quality and the reasons on the way."""
    with Client(url, token=os.environ.get("QPLAN_TOKEN")) as client:
        digest = client.model(Path(model))["digest"]
        stats = client.calibrate(digest, Path(samples))["digest"]
        plan = client.plan(digest, target, stats=stats)["key"]
        quality = client.measure(digest, plan, Path(samples), stats=stats, held_out=False)["quality"]
        found = client.summary(plan)
        print(f"{found['integer']} of {found['kernels']} kernels quantized for {found['target']}")
        for cause in found["causes"]:
            print(f"  {cause}")
        print(f"{quality['text']}, {quality['grade']}, {quality['measured_on']}")
        form = next(iter(found["formats"]), "onnx-qdq")
        client.export_to(digest, plan, form, out)
        print(f"{out}: {Path(out).stat().st_size:,} bytes of {form}; the report: {url}/plans/{plan}")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A client that openapi-python-client generated, driven from upload to download in an environment of its own.

`python openapi_run.py FOLDER URL TOKEN MODEL TARGET`: the folder has the package, the model and the
description of a target; the written file goes beside them. It says what it was told on the way, as JSON.
"""

import hashlib
import io
import json
import sys
from pathlib import Path

folder, url, token, model_file, target_file = sys.argv[1:]
sys.path.insert(0, folder)

from quant_planner_client import AuthenticatedClient  # noqa: E402
from quant_planner_client.api.blobs import get_blob, put_blob  # noqa: E402
from quant_planner_client.api.exports import export_plan  # noqa: E402
from quant_planner_client.api.models import read_model  # noqa: E402
from quant_planner_client.api.plans import explain_plan, get_plan_part, list_plans, make_plan  # noqa: E402
from quant_planner_client.api.targets import put_target  # noqa: E402
from quant_planner_client.models import (  # noqa: E402
    ExportRequest,
    ExportRequestFormat,
    ModelRequest,
    PlanRequest,
    ProblemDocument,
)
from quant_planner_client.types import File  # noqa: E402

client = AuthenticatedClient(base_url=url, token=token, timeout=60)
data = (Path(folder) / model_file).read_bytes()
digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
description = File(payload=io.BytesIO((Path(folder) / target_file).read_bytes()))
put_target.sync(name="own-npu@1.0.0", client=client, body=description)
put_blob.sync(digest=digest, client=client, body=File(payload=io.BytesIO(data)))
model = read_model.sync(client=client, body=ModelRequest(blob=digest))
plan = make_plan.sync(client=client, body=PlanRequest(model=model.digest, target="litert-int8"))
export = export_plan.sync(
    client=client,
    body=ExportRequest(model=model.digest, plan=plan.key, format_=ExportRequestFormat("onnx-qdq")),
)
written = get_blob.sync_detailed(digest=export.blob, client=client).content
(Path(folder) / "written.onnx").write_bytes(written)
missing = make_plan.sync(client=client, body=PlanRequest(model=model.digest, target="litert-int9"))
own = make_plan.sync(client=client, body=PlanRequest(model=model.digest, target="own-npu"))
sys.stdout.write(
    json.dumps(
        {
            "key": plan.key,
            "kernels": [kernel.name for kernel in plan.kernels],
            "explained": explain_plan.sync(key=plan.key, client=client, port=plan.kernels[0].name).lines,
            "part": json.loads(
                get_plan_part.sync_detailed(key=plan.key, client=client, pointer="/key").content
            ),
            "plans": sorted(item.key for item in list_plans.sync(client=client).items),
            "own": own.key,
            "problem": [type(missing) is ProblemDocument, missing.type_],
        }
    )
)

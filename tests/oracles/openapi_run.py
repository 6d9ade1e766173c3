"""A client that openapi-python-client generated, driven from upload to download in an environment of its own.

`python openapi_run.py FOLDER URL TOKEN MODEL TARGET SAMPLES`: the folder has the package, the model, the
description of a target and samples; the written file goes beside them. It imports every operation, and says
what it was told on the way, as JSON.
"""

import importlib
import io
import json
import sys
from pathlib import Path

folder, url, token, model_file, target_file, samples_file = sys.argv[1:]
sys.path.insert(0, folder)

from quant_planner_client import AuthenticatedClient  # noqa: E402
from quant_planner_client.api.blobs import get_blob, post_blob  # noqa: E402
from quant_planner_client.api.exports import export_plan  # noqa: E402
from quant_planner_client.api.models import read_model  # noqa: E402
from quant_planner_client.api.plans import explain_plan, get_plan_part, list_plans, make_plan  # noqa: E402
from quant_planner_client.api.quantizations import quantize  # noqa: E402
from quant_planner_client.api.targets import lint_target, put_target  # noqa: E402
from quant_planner_client.models import (  # noqa: E402
    ExportRequest,
    ExportRequestFormat,
    PlanRequest,
    ProblemDocument,
    QuantizationRequest,
    QuantizationRequestEffort,
    QuantizeFilesQuantizationForm,
    QuantizeFilesQuantizationFormEffort,
    TargetSource,
)
from quant_planner_client.types import File  # noqa: E402

operations = [path.relative_to(folder) for path in Path(folder).glob("quant_planner_client/api/*/*.py")]
for path in operations:
    importlib.import_module(".".join(path.with_suffix("").parts))


def sent(name: str) -> File:
    """A file beside the package, as a body."""
    return File(payload=io.BytesIO((Path(folder) / name).read_bytes()))


client = AuthenticatedClient(base_url=url, token=token, timeout=60)
put_target.sync(name="own-npu@1.0.0", client=client, body=sent(target_file))
source = TargetSource(source=(Path(folder) / target_file).read_text())
report = lint_target.sync(client=client, body=source)
model = read_model.sync(client=client, body=sent(model_file))
samples = post_blob.sync(client=client, body=sent(samples_file))
whole = QuantizationRequest(
    model=model.blob,
    samples=samples.digest,
    target="litert-int8",
    effort=QuantizationRequestEffort("quick"),
)
by_name = quantize.sync(client=client, prefer="wait=60", body=whole)
form = QuantizeFilesQuantizationForm(
    model=sent(model_file),
    samples=sent(samples_file),
    target="litert-int8",
    effort=QuantizeFilesQuantizationFormEffort("quick"),
)
by_form = quantize.sync(client=client, prefer="wait=60", body=form)
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
            "linted": report.id,
            "quantized": [by_name.file, by_form.file],
            "verdict": by_name.verdict.level,
            "problem": [type(missing) is ProblemDocument, missing.type_],
        }
    )
)

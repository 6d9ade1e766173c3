"""One awkward model through one side's quantizer in a process of its own; verdicts as JSON, the last counts.

Run by `awkward`, never imported. Both sides are judged by the same function, on the file they wrote.
Verdicts: `ok`, `refused` (a planned refusal), `crash` (any other exception), `invalid` (onnx's checker or
onnxruntime refuses the file), `useless` (nothing in integers, below 10 dB, or bigger than its source).
"""

import json
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime
from onnx import version_converter
from onnxruntime.quantization import CalibrationMethod, QuantFormat, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

import planner
from benchmarks.comparison import AS_WRITTEN, OPTIMIZED, decibel, open_session
from benchmarks.counting import float_ops, integer_ops
from benchmarks.ort_quantize import ACTIVATION, WEIGHT, FolderReader
from planner.errors import PlannerError
from planner.formats.onnx.read import read_onnx
from planner.formats.onnx.write import write_graph
from tests.awkward.job import samples_of
from tests.awkward.models import AWKWARD
from tests.exact_products import use_exact_products
from tests.formats.onnx.reader.runs import random_feeds

REALS: Final = frozenset({"tensor(double)", "tensor(float)", "tensor(float16)"})
PER_CHANNEL_SINCE: Final = 13
TARGET: Final = "onnxruntime-cpu"
LEAST_DB: Final = 10.0
# What a Q/DQ pair with its scales takes beside the weights: small models grow, and may.
NODE_BYTES: Final = 1000
FRAME_BYTES: Final = 2000

Record = dict[str, Any]
Feeds = Mapping[str, np.ndarray]


def ours(source: Path, samples: Sequence[Feeds], target: Path) -> None:
    """Write our onnx-qdq file for onnxruntime-cpu."""
    graph = planner.load_model(source)
    annotated = planner.annotate(graph, stats=planner.calibrate(graph, list(samples)))
    target.write_bytes(planner.export(annotated, planner.plan(annotated, TARGET), "onnx-qdq"))


def theirs(source: Path, samples: Sequence[Feeds], target: Path) -> None:
    """Write onnxruntime's QDQ file."""
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        for k, feeds in enumerate(samples):
            np.savez(Path(folder) / f"{k}.npz", **dict(feeds))
        quantize_static(
            str(source),
            str(target),
            FolderReader(Path(folder)),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=ACTIVATION,
            weight_type=WEIGHT,
            calibrate_method=CalibrationMethod.MinMax,
        )


def converted(source: Path) -> Path:
    """The model in the first opset that has scales per channel."""
    model = onnx.load(source)
    version = max((entry.version for entry in model.opset_import if not entry.domain), default=1)
    if version >= PER_CHANNEL_SINCE:
        return source
    target = source.with_name(f"converted_{source.name}")
    onnx.save(version_converter.convert_version(model, PER_CHANNEL_SINCE), target)
    return target


def preprocessed(source: Path) -> Path:
    """The model after onnxruntime's preprocessing, without its symbolic shapes where those fail."""
    target = source.with_name(f"preprocessed_{source.name}")
    try:
        quant_pre_process(str(source), str(target))
    except Exception:  # noqa: BLE001 - as its own message asks for
        quant_pre_process(str(source), str(target), skip_symbolic_shape=True)
    return target


# What a patient user would try, one after the other, until a file is good.
ATTEMPTS: Final[Mapping[str, tuple[tuple[str, Callable[[Path], Path]], ...]]] = {
    "ours": (("", Path),),
    "theirs": (
        ("", lambda source: preprocessed(converted(source))),
        ("not converted", preprocessed),
        ("not preprocessed", converted),
        ("neither converted nor preprocessed", Path),
    ),
}
SIDES: Final[Mapping[str, Callable[[Path, Sequence[Feeds], Path], None]]] = {"ours": ours, "theirs": theirs}
RANKS: Final = ("ok", "refused", "useless", "invalid", "crash")


def attempt(
    side: str, prepare: Callable[[Path], Path], source: Path, samples: Sequence[Feeds], target: Path
) -> Record:
    """Quantize, and judge the file."""
    try:
        SIDES[side](prepare(source), samples, target)
    except PlannerError as error:
        return {"verdict": "refused", "note": one_line(error)}
    except Exception as error:  # noqa: BLE001 - recorded, and shown in the table
        return {"verdict": "crash", "note": one_line(error)}
    return judge(source, samples, target)


def judge(source: Path, samples: Sequence[Feeds], target: Path) -> Record:
    """Return the verdict on a file, with its figures."""
    model = onnx.load(target)
    try:
        if all(entry.domain in ("", "ai.onnx") for entry in model.opset_import):
            onnx.checker.check_model(model)
    except Exception as error:  # noqa: BLE001 - whatever refuses the file, it is no good
        return {"verdict": "invalid", "note": f"onnx's checker: {one_line(error)}"}
    try:
        sessions = [open_session(target, level) for level in (AS_WRITTEN, OPTIMIZED)]
        worst = min(worst_db(reference_of(source), session, samples) for session in sessions)
    except Exception as error:  # noqa: BLE001 - see above
        return {"verdict": "invalid", "note": f"onnxruntime: {one_line(error)}"}
    integers = sum(integer_ops(model, stored_results=False).values())
    floats = sum(float_ops(model, stored_results=False).values())
    growth = target.stat().st_size - source.stat().st_size
    record = {"db": worst, "integer_ops": integers, "float_ops": floats, "growth": growth}
    allowed = NODE_BYTES * (integers + floats) + FRAME_BYTES
    if worst < LEAST_DB:
        return {**record, "verdict": "useless", "note": "garbage"}
    if growth > allowed:
        return {**record, "verdict": "useless", "note": "bigger than the source"}
    if not integers and floats:
        return {**record, "verdict": "useless", "note": "nothing in integers"}
    return {**record, "verdict": "ok", "note": ""}


def worst_db(
    reference: onnxruntime.InferenceSession, other: onnxruntime.InferenceSession, samples: Sequence[Feeds]
) -> float:
    """SQNR of the worst output of reals; the other outputs are run, too."""
    names = [port.name for port in reference.get_outputs() if port.type in REALS]
    used = {port.name for port in reference.get_inputs()}
    sums = np.zeros((2, len(names)))
    for feeds in samples:
        fed = {name: array for name, array in feeds.items() if name in used}
        reference.run(None, fed), other.run(None, fed)
        if not names:
            continue
        pairs = zip(reference.run(names, fed), other.run(names, fed), strict=True)
        for i, (wanted, got) in enumerate(pairs):
            wide = wanted.astype(np.float64)
            same = (wide == got) | (np.isnan(wide) & np.isnan(got.astype(np.float64)))
            sums[0, i] += np.square(wide).sum()
            sums[1, i] += np.square(wide - got, where=~same, out=np.zeros_like(wide)).sum()
    return min((decibel(signal, noise) for signal, noise in sums.T.tolist()), default=float("inf"))


def reference_of(source: Path) -> onnxruntime.InferenceSession:
    """The float model; re-emitted by our importer where onnxruntime refuses the source."""
    try:
        return open_session(source, AS_WRITTEN)
    except Exception:  # noqa: BLE001 - each kind of file is refused in its own way
        again = source.with_name("again.onnx")
        again.write_bytes(write_graph(read_onnx(source)))
        return open_session(again, AS_WRITTEN)


def one_line(error: BaseException) -> str:
    """Kind and beginning of an error."""
    text = " ".join(str(error).split()).replace("[ONNXRuntimeError] : ", "")
    text = re.sub(r"(Load model )?from /\S+ failed: ?", "", text)
    return f"{type(error).__name__}: {text}"[:150]


def samples_for(data: bytes) -> tuple[Feeds, ...]:
    """The same samples for both sides; none where nothing can even say what the inputs are."""
    try:
        return samples_of(read_onnx(data))
    except PlannerError:
        pass
    try:
        return tuple(random_feeds(data, seed) for seed in range(3))
    except Exception:  # noqa: BLE001 - then there is nothing to run either
        return ()


def main() -> None:
    """Run `SIDE NAME` in the current folder and print the verdict."""
    side, name = sys.argv[1:]
    use_exact_products()  # for both: a processor's saturation is not what is compared
    source, target = Path("source.onnx"), Path(f"{side}.onnx")
    data = AWKWARD[name]()
    source.write_bytes(data)
    samples = samples_for(data)
    best: Record = {}
    for remark, prepare in ATTEMPTS[side]:
        record = {**attempt(side, prepare, source, samples, target), "remark": remark}
        if not best or RANKS.index(record["verdict"]) < RANKS.index(best["verdict"]):
            best = record
        # Said before the next attempt, which may take the process down.
        print(json.dumps(best), flush=True)
        if best["verdict"] == "ok":
            break


if __name__ == "__main__":
    main()

"""Options that several verbs share, and reading their files: model, statistics, target, plan, costs.

Reading goes through the public face of `planner`.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import typer

from planner.cli.files import STDIN, model_format, read_bytes, read_text
from planner.cli.help.choices import complete_target
from planner.errors import InputError, ModelError, PlanFormatError, QTypeError, unknown_name
from planner.formats.stablehlo.identifier import is_serialized

if TYPE_CHECKING:
    from planner.calibration.statistics import Statistics
    from planner.ir.graph import Graph
    from planner.plans.plan import Plan
    from planner.target.records import QuantFn, Target

MOST_DIGITS: Final = 18
"""Of a size or place in a tensor: `int` has a limit of its own, and no sentence for it."""

ModelFile: TypeAlias = Annotated[
    str, typer.Argument(metavar="MODEL", help="ONNX or .tflite file, or annotated model (.json, .mlir).")
]
PlanFile: TypeAlias = Annotated[
    str, typer.Argument(metavar="PLAN", help="plan.json of an earlier plan, or its folder.")
]
PlannedModelOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--model", metavar="MODEL", help="The planned model; by default where the plan has it."),
]
PlannedTargetOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--target", "-t", metavar="T", help="The plan's target; by default where the plan has it."),
]
TargetOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--target",
        "-t",
        metavar="T",
        help="Shipped name (see target list) or a YAML file.",
        autocompletion=complete_target,
    ),
]
TargetName: TypeAlias = Annotated[
    str,
    typer.Argument(metavar="T", help="Shipped name, or a YAML file.", autocompletion=complete_target),
]
RequiredData: TypeAlias = Annotated[
    str, typer.Option("--data", metavar="DIR|NPZ", help="Samples: a folder of .npz, or one .npz of many.")
]
DataOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--data", metavar="DIR|NPZ", help="Samples: a folder of .npz, or one .npz of many samples."),
]
StatsOption: TypeAlias = Annotated[
    str | None, typer.Option("--stats", metavar="JSON", help="Statistics of an earlier calibrate.")
]
ReadersOption: TypeAlias = Annotated[
    int,
    typer.Option(
        "--readers",
        metavar="N",
        min=0,
        help="Samples on which to measure the effect of rounding on consumers.",
    ),
]
MethodOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--method",
        metavar="M",
        help="minmax (the default), percentile, percentile:99.9, mse or entropy; over the one of --stats.",
    ),
]
ConditionOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--condition", metavar="M", help="Condition weights first: equalize,absorb,migrate:0.8,round."
    ),
]
BitsOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--bits", metavar="W", help="Widths of all weights and activations: w=4,a=4, or one of the two."
    ),
]
AnnotationsOption: TypeAlias = Annotated[
    str | None, typer.Option("--annotations", metavar="YAML", help="Constraints by value name or glob.")
]
EvalDataOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--eval-data", metavar="DIR|NPZ", help="Held-out evaluation data, with or without labels."),
]
OutputOption: TypeAlias = Annotated[
    str | None, typer.Option("--output", metavar="NAME", help="The output that labels are for.")
]
MetricOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--metric", metavar="M", help="top1, top5, cross_entropy, or module:function(outputs, labels)."
    ),
]
MinSqnrOption: TypeAlias = Annotated[
    float | None, typer.Option("--min-sqnr", metavar="DB", help="Exit code 1 if an output is below.")
]
MinMetricOption: TypeAlias = Annotated[
    float | None,
    typer.Option("--min-metric", metavar="X", help="Exit code 1 if the metric, by default top1, is below."),
]
MinCoverageOption: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--min-coverage",
        metavar="SHARE",
        help="Exit code 1 if a smaller share of multiply-adds (without any, of kernels) is quantized.",
    ),
]
ReferenceOption: TypeAlias = Annotated[
    Literal["written", "stripped"],
    typer.Option("--reference", help="Compare with the model as given, or without its own quantizers."),
]
FunctionsOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--functions", metavar="MODULE", help="Python module or file with the target's functions."),
]
OutFile = Annotated[
    str | None, typer.Option("--out", "-o", metavar="FILE", help="Write to a file, not standard output.")
]
BestEffortOption: TypeAlias = Annotated[
    bool,
    typer.Option("--best-effort", help="Drop conflicting constraints with a warning instead of failing."),
]
CutOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--cut", metavar="NAMES", help="End an ONNX model at these values (a,b), not at its outputs."
    ),
]
DimOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--dim", metavar="NAME=SIZE", help="Give an open dimension its size (batch=1, x[0]=1); repeatable."
    ),
]
ExternalOption: TypeAlias = Annotated[
    bool | None,
    typer.Option(
        "--external-data/--no-external-data",
        help="Weights in a file beside the model, or in it; beside it if not said and the model's own are "
        "large and lie so.",
        show_default=False,
    ),
]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]


def read_model(name: str, cut: str | None = None, *, dims: Mapping[str, int] | None = None) -> "Graph":
    """Load a model from a path or standard input, and end it at other values where they are given."""
    import planner

    outputs = cut_names(cut)
    if name != STDIN:
        with of_file(name):
            return planner.load_model(name, outputs=outputs, dims=dims)
    data = read_bytes(name, "model")
    return planner.load_model(
        data, format=None if is_serialized(data) else model_format(data), outputs=outputs, dims=dims
    )


def sizes_of(texts: Iterable[str] | None) -> dict[str, int]:
    """Read the pairs of `--dim`.

    Raises:
      InputError: not `NAME=SIZE`, or two sizes under one name.
    """
    found: dict[str, int] = {}
    for text in texts or ():
        name, _, size = text.rpartition("=")
        if not name or not is_count(size):
            raise InputError(f"--dim {text:.200}: accepted is NAME=SIZE, such as --dim batch=1")
        if found.get(name, int(size)) != int(size):
            raise InputError(f"--dim {text:.200}: {name!r} has size {found[name]} already")
        found[name] = int(size)
    return found


def is_count(text: str) -> bool:
    """Whether a text is a whole number that is no more than a place or a size can be."""
    return text.isdecimal() and len(text) <= MOST_DIGITS


def cut_names(cut: str | None) -> list[str] | None:
    """Names of `--cut`."""
    return None if cut is None else [name.strip() for name in cut.split(",") if name.strip()]


def read_stats(name: str, method: str | None = None) -> "Statistics":
    """Read saved statistics from a path or standard input; with a method, its ranges instead of their own."""
    import planner
    from planner.calibration.statsjson import read_statistics

    is_piped = name == STDIN
    found = (
        read_statistics(read_text(name, "statistics"), "stdin") if is_piped else planner.load_statistics(name)
    )
    return found if method is None else found.by(method)


def read_annotations_argument(name: str) -> str:
    """Give the argument of `annotate`: the path, or the text of standard input, which ends in a newline."""
    return read_text(name, "annotations") + "\n" if name == STDIN else name


def read_target(name: str, functions: str | None = None) -> "Target":
    """Load a target by shipped name, path or standard input."""
    import planner

    source = read_text(name, "target") + "\n" if name == STDIN else name
    return planner.load_target(source, load_functions(functions))


def read_plan(name: str) -> "Plan":
    """Read a plan file, or the `plan.json` of a folder."""
    import planner

    name = str(Path(name) / "plan.json") if name != STDIN and Path(name).is_dir() else name
    with of_file(name):
        return planner.plan_from_json(read_text(name, "plan"))


@contextmanager
def of_file(name: str) -> Iterator[None]:
    """Name the file in the failures of parsers that only saw its text."""
    try:
        yield
    except (ModelError, PlanFormatError, QTypeError) as error:
        if name not in error.message and Path(name).name not in error.message:
            raise type(error)(f"{name}: {error.message}", hint=error.hint) from error
        raise


def load_functions(module: str | None) -> "Mapping[str, QuantFn]":
    """Import a module and offer its public functions, by `name` and by `module:name`.

    Raises:
      InputError: a module that is not there or does not import.
    """
    if module is None:
        return {}
    loaded = load_module(module, f"--functions {module}")
    found: dict[str, Callable[..., Any]] = {}
    for name, item in vars(loaded).items():
        if callable(item) and not name.startswith("_"):
            found |= {name: item, f"{loaded.__name__}:{name}": item}
    return found


def load_function(place: str, option: str) -> "Callable[..., Any]":
    """A function by `module:function`, where the module may be a Python file.

    Args:
      option: that names it, for the message.

    Raises:
      InputError: a module that is not there or does not import, or no such function in it.
    """
    module, _, name = place.rpartition(":")
    found = getattr(load_module(module, f"{option} {place}"), name, None)
    if not callable(found):
        raise InputError(f"{option} {place}: {module} has no function {name!r}")
    return found  # type: ignore[no-any-return]


def load_module(module: str, option: str) -> Any:
    """Import a module by its name, or a Python file by its path.

    Args:
      option: that names it, for the message.

    Raises:
      InputError: a module that is not there or does not import.
    """
    try:
        return _module_file(Path(module)) if module.endswith(".py") else _module_named(module)
    except Exception as error:
        raise InputError(f"{option}: {type(error).__name__}: {error}") from error


def _module_named(name: str) -> Any:
    if "" not in sys.path:
        sys.path.insert(0, "")
    return importlib.import_module(name)


def _module_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def parse_costs(settings: Sequence[str]) -> dict[str, float | None]:
    """Read `bit_price=4` pairs.

    Raises:
      UnknownName: no such cost.
      InputError: not `cost=value`, or a value that is no number of at least 0.
    """
    from dataclasses import fields

    from planner.target.records import UNLIMITED, Costs

    known = [field.name for field in fields(Costs)]
    costs: dict[str, float | None] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise InputError(f"--set {setting!r}: expected cost=value, such as bit_price=4")
        if name not in known:
            raise unknown_name("cost", name, known)
        costs[name] = None if name in UNLIMITED and text == "none" else _price(setting, text)
    return costs


def _price(setting: str, text: str) -> float:
    try:
        price = float(text)
    except ValueError:
        price = -1.0
    if not 0 <= price < float("inf"):
        raise InputError(f"--set {setting!r}: {text!r} is no number of at least 0")
    return price


def stats_warnings(model: "Graph", stats: "Statistics | None") -> Iterator[str]:
    """Oddities of statistics: another model's, none at all, NaN and infinity (of the first such value)."""
    from planner.calibration.annotate import mismatch

    if stats is None:
        return
    if text := mismatch(model, stats):
        yield text
    for name, seen in stats.values.items():
        if seen.nan or seen.inf:
            yield (
                f"the samples make {name!r} NaN or infinite {seen.nan + seen.inf} times: no range and no "
                "mean counts that (clean them and calibrate again)"
            )
            return
    if not stats.values:
        yield "no sample gives any value a finite number: the statistics are empty"

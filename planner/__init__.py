"""The planner's face: load, calibrate, annotate, plan, explain, check, export, evaluate, compare.

Names load on first use (PEP 562), so that `import planner` stays light. Everything not listed here is
private. Source: docs/library.md.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

from planner.version import VERSION

if TYPE_CHECKING:
    from planner.accuracy.losses import Losses, losses
    from planner.accuracy.unseen_values import unlike_calibration
    from planner.analysis.tensors import tensors
    from planner.bits import with_bits
    from planner.calibration.caches.per_head import with_caches
    from planner.calibration.odd_samples import odd_samples
    from planner.calibration.sources.images import images
    from planner.calibration.statistics import Statistics
    from planner.calibration.statsjson import load_statistics
    from planner.conversion.convert import convert
    from planner.costs import cost
    from planner.errors import Conflict, PlanInvalid, PlannerError
    from planner.formats.integer_kernels import IntegerKernel, integer_kernels
    from planner.interpreter.compare import Comparison
    from planner.interpreter.models import run_model as run
    from planner.ir.arithmetic.multipliers import multiplier
    from planner.ir.graph import Graph
    from planner.ir.kernel_requests import with_wanted
    from planner.ir.types.typetext import parse_type
    from planner.pipeline import (
        annotate,
        calibrate,
        check,
        compare,
        evaluate,
        export,
        export_to,
        load_model,
        plan,
    )
    from planner.plan_search.search import Search, search
    from planner.plans.diff import diff
    from planner.plans.explain import explain
    from planner.plans.networkx_graph import to_networkx
    from planner.plans.plan import Plan
    from planner.plans.read_json import plan_from_json
    from planner.quantizing import Quantized, quantize
    from planner.report.html import write_report
    from planner.target.load import load_target, target_ids
    from planner.target.records import Target
    from planner.training.groups import training_spec
    from planner.training.learned import with_learned
    from planner.weight_conditioning.biases import correct_biases
    from planner.weight_conditioning.condition import condition
    from planner.what_if.pareto import pareto
    from planner.what_if.replan import replan
    from planner.what_if.restore import restore
    from planner.what_if.retarget import retarget
    from planner.what_if.suggest import suggest

__version__ = VERSION

_HOMES: Final = {
    "Comparison": "planner.interpreter.compare",
    "Conflict": "planner.errors",
    "Graph": "planner.ir.graph",
    "IntegerKernel": "planner.formats.integer_kernels",
    "Losses": "planner.accuracy.losses",
    "Plan": "planner.plans.plan",
    "PlanInvalid": "planner.errors",
    "PlannerError": "planner.errors",
    "Quantized": "planner.quantizing",
    "Search": "planner.plan_search.search",
    "Statistics": "planner.calibration.statistics",
    "Target": "planner.target.records",
    "annotate": "planner.pipeline",
    "calibrate": "planner.pipeline",
    "check": "planner.pipeline",
    "compare": "planner.pipeline",
    "condition": "planner.weight_conditioning.condition",
    "convert": "planner.conversion.convert",
    "correct_biases": "planner.weight_conditioning.biases",
    "cost": "planner.costs",
    "diff": "planner.plans.diff",
    "evaluate": "planner.pipeline",
    "explain": "planner.plans.explain",
    "export": "planner.pipeline",
    "export_to": "planner.pipeline",
    "images": "planner.calibration.sources.images",
    "integer_kernels": "planner.formats.integer_kernels",
    "load_model": "planner.pipeline",
    "load_statistics": "planner.calibration.statsjson",
    "load_target": "planner.target.load",
    "losses": "planner.accuracy.losses",
    "multiplier": "planner.ir.arithmetic.multipliers",
    "odd_samples": "planner.calibration.odd_samples",
    "pareto": "planner.what_if.pareto",
    "parse_type": "planner.ir.types.typetext",
    "plan": "planner.pipeline",
    "plan_from_json": "planner.plans.read_json",
    "quantize": "planner.quantizing",
    "replan": "planner.what_if.replan",
    "restore": "planner.what_if.restore",
    "retarget": "planner.what_if.retarget",
    "run": "planner.interpreter.models:run_model",
    "search": "planner.plan_search.search",
    "suggest": "planner.what_if.suggest",
    "target_ids": "planner.target.load",
    "tensors": "planner.analysis.tensors",
    "to_networkx": "planner.plans.networkx_graph",
    "training_spec": "planner.training.groups",
    "unlike_calibration": "planner.accuracy.unseen_values",
    "with_bits": "planner.bits",
    "with_caches": "planner.calibration.caches.per_head",
    "with_learned": "planner.training.learned",
    "with_wanted": "planner.ir.kernel_requests",
    "write_report": "planner.report.html",
}

__all__ = [
    "Comparison",
    "Conflict",
    "Graph",
    "IntegerKernel",
    "Losses",
    "Plan",
    "PlanInvalid",
    "PlannerError",
    "Quantized",
    "Search",
    "Statistics",
    "Target",
    "__version__",
    "annotate",
    "calibrate",
    "check",
    "compare",
    "condition",
    "convert",
    "correct_biases",
    "cost",
    "diff",
    "evaluate",
    "explain",
    "export",
    "export_to",
    "images",
    "integer_kernels",
    "load_model",
    "load_statistics",
    "load_target",
    "losses",
    "multiplier",
    "odd_samples",
    "pareto",
    "parse_type",
    "plan",
    "plan_from_json",
    "quantize",
    "replan",
    "restore",
    "retarget",
    "run",
    "search",
    "suggest",
    "target_ids",
    "tensors",
    "to_networkx",
    "training_spec",
    "unlike_calibration",
    "with_bits",
    "with_caches",
    "with_learned",
    "with_wanted",
    "write_report",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'planner' has no attribute {name!r}")
    module, _, attribute = home.partition(":")
    found = globals()[name] = getattr(importlib.import_module(module), attribute or name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)

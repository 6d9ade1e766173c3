"""Calls: one function for each operation of the service, as steps; methods of `Client` and `AsyncClient`.

Plans are dictionaries as in plan files; `planner.plan_from_json(json.dumps(plan))` makes a `Plan` of one.
Nothing here plans or reads models. Source: design 06.
"""

from planner.client.calls.answers import job, wait
from planner.client.calls.files import blobs, delete_blob, download, upload
from planner.client.calls.job_calls import calibrate, cancel, compare, export, jobs, losses, measure, search
from planner.client.calls.model_calls import (
    delete_model,
    delete_stats,
    get_model,
    get_stats,
    list_stats,
    model,
    models,
    stats,
)
from planner.client.calls.plan_calls import (
    delete_plan,
    diff,
    explain,
    get_plan,
    pareto,
    plan,
    plans,
    ports,
    preview,
    replan,
    report,
    suggest,
    summary,
    view,
)
from planner.client.calls.target_calls import (
    delete_target,
    lint,
    put_target,
    schema,
    server,
    target,
    target_source,
    targets,
    test_target,
)

__all__ = [
    "blobs",
    "calibrate",
    "cancel",
    "compare",
    "delete_blob",
    "delete_model",
    "delete_plan",
    "delete_stats",
    "delete_target",
    "diff",
    "download",
    "explain",
    "export",
    "get_model",
    "get_plan",
    "get_stats",
    "job",
    "jobs",
    "lint",
    "list_stats",
    "losses",
    "measure",
    "model",
    "models",
    "pareto",
    "plan",
    "plans",
    "ports",
    "preview",
    "put_target",
    "replan",
    "report",
    "schema",
    "search",
    "server",
    "stats",
    "suggest",
    "summary",
    "target",
    "target_source",
    "targets",
    "test_target",
    "upload",
    "view",
    "wait",
]

"""Plans: made, read, explained, and made again with other constraints."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from planner.client.calls.answers import AS_JOB, items_of, object_of, quoted, wait
from planner.client.steps import Ask, Steps


def plans(
    *, model: str | None = None, target: str | None = None, order: str | None = None
) -> Steps[list[dict[str, Any]]]:
    """List the plans: keys, sizes, targets and models.

    Args:
      model: only those of this model, by digest.
      target: only those for this target, `id` or `id@version`.
      order: `newest` or, by default, `name`.
    """
    return (yield from items_of("/v1/plans", {"model": model, "target": target, "order": order}))


def delete_plan(key: str) -> Steps[None]:
    """Take a plan away; the same request makes it again."""
    yield Ask("DELETE", f"/v1/plans/{quoted(key)}")


def plan(
    model: str | Mapping[str, Any],
    target: str,
    *,
    stats: str | Mapping[str, Any] | None = None,
    annotations: Mapping[str, Any] | None = None,
    strategy: Literal["minimal", "rfc"] = "minimal",
    best_effort: bool = False,
    bias_pins: Literal["error", "derive"] = "error",
    formats: Sequence[str] = (),
    correct_biases: bool = False,
    as_job: bool = False,
    **costs: float | None,
) -> Steps[dict[str, Any]]:
    """Plan a model for a target.

    Args:
      model: the digest of a read model, or an annotated model itself.
      target: `id` or `id@version`.
      stats: the digest of stored statistics, or the document.
      best_effort: give some constraints up where not all can hold, each with a warning.
      bias_pins: policy for a bias fixed to another scale than its factors' product.
      formats: to export in; kernels that one of them cannot write take another row, or float.
      correct_biases: take the mean error of integer weights out of biases, by the means that `stats` have.
      as_job: for models that take longer than the server plans within a request.
      costs: prices over the target's own.

    Raises:
      Conflict: constraints that cannot all hold; `.facts` is a small set of them.
    """
    options: dict[str, Any] = {"strategy": strategy, "best_effort": best_effort, "bias_pins": bias_pins}
    options["costs"] = costs
    options |= {"formats": list(formats)} if formats else {}
    options |= {"correct_biases": True} if correct_biases else {}
    body: dict[str, Any] = {"model": model, "target": target, "options": options}
    given = {"stats": stats, "annotations": annotations}
    body |= {name: item for name, item in given.items() if item is not None}
    answer = yield Ask("POST", "/v1/plans", json=body, headers=AS_JOB if as_job else {})
    if answer.status_code == 202:
        made = yield from wait(answer.json()["id"])
        return (yield from get_plan(made["plan"]))
    return dict(answer.json())


def get_plan(key: str) -> Steps[dict[str, Any]]:
    """Fetch a plan that was made before."""
    return (yield from object_of(Ask("GET", f"/v1/plans/{quoted(key)}")))


def summary(key: str) -> Steps[dict[str, Any]]:
    """The totals of a plan, and why kernels run in float."""
    return (yield from object_of(Ask("GET", f"/v1/plans/{quoted(key)}/summary")))


def view(key: str, before: str | None = None) -> Steps[dict[str, Any]]:
    """The drawing of a plan (`qplan.view/1`), beside the plan `before` where one is named."""
    params = {} if before is None else {"before": before}
    return (yield from object_of(Ask("GET", f"/v1/plans/{quoted(key)}/view", params=params)))


def ports(key: str) -> Steps[list[dict[str, Any]]]:
    """List the ports of a plan with their types, in plan order."""
    return (yield from items_of(f"/v1/plans/{quoted(key)}/ports", {"limit": "1000"}))


def plan_part(key: str, pointer: str) -> Steps[Any]:
    """Fetch a part of a plan: what a JSON pointer (`/kernels/0/name`) leads to."""
    answer = yield Ask("GET", f"/v1/plans/{quoted(key)}/part", params={"pointer": pointer})
    return answer.json()


def explain(key: str, address: str) -> Steps[str]:
    """Say why a port (`conv1.in[0]`), value, kernel or rescale of a plan is as it is."""
    found = yield from object_of(Ask("GET", f"/v1/plans/{quoted(key)}/explain", params={"port": address}))
    return "\n".join(found["lines"])


def preview(
    key: str,
    *,
    values: Mapping[str, Any] | None = None,
    ports: Mapping[str, Any] | None = None,
    kernels: Mapping[str, Any] | None = None,
    remove: Sequence[str] = (),
    restore: Sequence[str] = (),
) -> Steps[dict[str, Any]]:
    """Say what changed constraints would change, at once; nothing is kept, and `replan` makes the plan.

    Args:
      values, ports, kernels, remove, restore: as for `replan`; kernels: float or a storage, by name.

    Returns:
      `totals` before and after, changed `kernels`, `ports` and `rescales`, and `lines` for people.
    """
    body: dict[str, Any] = {"values": values or {}, "ports": ports or {}, "kernels": kernels or {}}
    body |= {"remove": list(remove), "restore": list(restore)}
    return (yield from object_of(Ask("POST", f"/v1/plans/{quoted(key)}:preview", json=body)))


def replan(
    key: str,
    *,
    values: Mapping[str, Any] | None = None,
    ports: Mapping[str, Any] | None = None,
    remove: tuple[str, ...] | list[str] = (),
    restore: tuple[str, ...] | list[str] = (),
    target: str | None = None,
    best_effort: bool = False,
) -> Steps[dict[str, Any]]:
    """Plan again with changed constraints, or for another target.

    Args:
      values, ports: types by name of a value or glob, by address of a port.
      remove: values and ports whose facts go.
      restore: kernels to run in float.
      target: a shipped one to plan for instead; what it takes apart keeps the types of its ports.
      best_effort: with `target`, give up what cannot hold there, each with a warning.
    """
    body: dict[str, Any] = {"values": values or {}, "ports": ports or {}}
    body |= {"remove": list(remove), "restore": list(restore), "target": target}
    body |= {"best_effort": True} if best_effort else {}
    return (yield from object_of(Ask("POST", f"/v1/plans/{quoted(key)}:replan", json=body)))


def suggest(key: str, rescale: str) -> Steps[dict[str, Any]]:
    """Find edits that remove a rescale (`y#0`): `suggestions` with their `edits`, and `lines` to read."""
    path = f"/v1/plans/{quoted(key)}/suggest"
    return (yield from object_of(Ask("GET", path, params={"rescale": rescale})))


def pareto(key: str, component: str) -> Steps[dict[str, Any]]:
    """List the trade-offs around a value or rescale: `tradeoffs`, and `lines` to read."""
    path = f"/v1/plans/{quoted(key)}/pareto"
    return (yield from object_of(Ask("GET", path, params={"component": component})))


def diff(before: str, after: str) -> Steps[dict[str, Any]]:
    """Compare two plans, by key, kernel by kernel: `totals`, changes with reasons, and `lines` to read."""
    path = f"/v1/plans/{quoted(before)}/diff"
    return (yield from object_of(Ask("GET", path, params={"against": after})))


def report(
    key: str, *, before: str | None = None, pareto: Sequence[str] = (), search: str | None = None
) -> Steps[str]:
    """The report of a plan: one HTML file that needs nothing else.

    Args:
      before: another plan's key; the report marks changes since.
      pareto: values or rescales whose trade-offs it draws, at most 8.
      search: blob of a search; it draws the front.
    """
    asked = {"before": before, "pareto": list(pareto), "search": search}
    params = {name: item for name, item in asked.items() if item}
    text: str = (yield Ask("GET", f"/v1/plans/{quoted(key)}/report", params=params)).text
    return text

"""QNN's op packages (XML op definitions) as a target: each operation is a kernel, each datatype of its
first input a row.

A definition lists the datatypes that each tensor may have; which go together is said in free text, if at
all. Source: Qualcomm AI Engine Direct, "XML OpDef Schema" and "Example XML OpDef Configs" (`qnn-op-package-
generator`), and the same schema in the Neural Processing SDK ("Defining a UDO").
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from planner.errors import InputError
from planner.target.yamltree import nearest
from planner.target_exchange.draft import Imported, RowDraft, TargetDraft, id_of
from planner.target_exchange.xmltree import Element, read_xml

DATATYPES: Final[Mapping[str, str]] = {
    **{
        f"{sign}FIXED_POINT_{bits}": f"{kind}{bits}"
        for sign, kind in (("U", "u"), ("S", "i"))
        for bits in (4, 8, 16, 32)
    },
    "FIXED_4": "u4",
    "FIXED_8": "u8",
    "FIXED_16": "u16",
    "FLOAT_16": "f16",
    "FLOAT_32": "f32",
    "BFLOAT_16": "bf16",
}
"""Datatypes of numbers, without `QNN_DATATYPE_`; what is fixed alone is of the older SDK, and unsigned."""

PLAIN: Final = frozenset(
    {f"{kind}_{bits}" for kind in ("INT", "UINT") for bits in (8, 16, 32, 64)} | {"BOOL_8", "STRING"}
)
"""Datatypes of indices, shapes, flags: such tensors are no ports."""

SPECIFIC: Final = "BACKEND_SPECIFIC"
RANKS: Final[Mapping[str, int | None]] = {
    "SCALAR": 0,
    "0D": 0,
    "1D": 1,
    "2D": 2,
    "3D": 3,
    "4D": 4,
    "5D": 5,
    "ND": None,
}
_NAME: Final = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a definition: its port, the storages it may have (none: plain integers), and the rest."""

    element: Element
    port: str
    storages: tuple[str, ...]
    optional: bool
    repeated: bool
    static: bool
    rank: int | None


def import_qnn(text: str, name: str, target_id: str = "") -> Imported:
    """Make a target of an op package's definitions.

    Raises:
      InputError: no XML, or a definition that breaks the schema, with its place and the accepted values.
    """
    root = read_xml(text, name)
    if root.name != "OpDefCollection":
        root.fail("is no op package", accepted="<OpDefCollection> at the top")
    package = root.attributes.get("PackageName", "")
    domain = root.attributes.get("Domain", "")
    if not _NAME.fullmatch(domain):
        root.fail(f"the domain {domain!r} is no name", accepted='Domain="letters, digits and _"')
    lists = root.all("OpDefList")
    definitions = [definition for entry in lists for definition in entry.all("OpDef")]
    if not definitions:
        root.fail("holds no operation", accepted="<OpDefList> with <OpDef> entries")
    title = f"QNN op package {package or name}"
    draft = TargetDraft(target_id or id_of(package, "qnn-package"), title, f"QNN's {name}")
    draft.defaults = {"islands": "float"}
    supplements = _supplements(root, draft)
    for definition in definitions:
        _operation(definition, supplements, domain, draft)
    if not draft.rows:
        raise InputError(
            f"{name}: no operation has a tensor of fixed-point or float numbers, so there is no row"
        )
    ports = [name for row in draft.rows for name in row.inputs.values() if not name.startswith(("f", "bf"))]
    draft.default_port = ports[0] if ports else draft.type("u8", storage="u8")
    return draft.imported()


def _supplements(root: Element, draft: TargetDraft) -> dict[str, Element]:
    """Supplements by operation, of the first backend that has any."""
    backends = root.all("SupplementalOpDefList")
    for other in backends[1:]:
        draft.not_said(
            f"{other.attributes.get('Backend', 'a backend')}: one backend a target; the first is written"
        )
    found: dict[str, Element] = {}
    for supplement in backends[0].all("SupplementalOpDef") if backends else ():
        found[supplement.words("Name")] = supplement
    return found


def _operation(
    definition: Element, supplements: Mapping[str, Element], domain: str, draft: TargetDraft
) -> None:
    name = _identifier(definition)
    extra = supplements.get(name)
    inputs = _tensors(definition, extra, "Input", draft, name)
    outputs = _tensors(definition, extra, "Output", draft, name)
    ports = [tensor for tensor in inputs if tensor.storages]
    results = [tensor for tensor in outputs if tensor.storages]
    for tensor in (*inputs, *outputs):
        if not tensor.storages:
            draft.not_said(f"{name}: {tensor.port} holds plain integers or flags: it is no port")
    if not ports or not results:
        draft.not_said(f"{name}: no tensor of numbers on one side, so it has no row")
        return
    kernel = f"{domain}.{name}"
    draft.fusions.append({"kernel": kernel, "pattern": f"function:{domain}.{name}"})
    when: dict[str, Any] = {}
    for tensor in ports:
        if tensor.static:
            when[tensor.port] = "constant"
        if tensor.rank is not None and not tensor.repeated:
            when[f"{tensor.port}.rank"] = tensor.rank
    _parameters(definition, extra, draft, name)
    for lead in ports[0].storages:
        row = RowDraft(
            (kernel,),
            {_written(tensor): _type(draft, tensor, lead, name) for tensor in ports},
            {_written(tensor): _type(draft, tensor, lead, name) for tensor in results},
            when=when,
        )
        if lead.startswith(("f", "bf")):
            row.more = {"float": lead}
        draft.rows.append(row)
    if not draft.tests:
        _test(draft, f"{domain}::{name}", kernel, ports, results)


def _test(
    draft: TargetDraft, op: str, kernel: str, ports: Sequence[Tensor], results: Sequence[Tensor]
) -> None:
    """A test that the first operation runs by a row: on tensors of two elements a dimension."""
    model = []
    for tensor in ports:
        shape = f"f32[{','.join('2' * (2 if tensor.rank is None else tensor.rank))}] {{-1, 1}}"
        model.append(f"{tensor.port} {'= constant ' if tensor.static else ''}: {shape}")
    names = ", ".join(tensor.port for tensor in results)
    types = ", ".join("f32[2,2] {-1, 1}" for _ in results)
    model.append(f"{names} = {op}({', '.join(tensor.port for tensor in ports)}) : {types}")
    model.append(f"return {names}")
    draft.tests.append({"name": f"{kernel} has a row", "model": model, "expect": {"kernels": {kernel: 1}}})


def _identifier(definition: Element) -> str:
    name = definition.words("Name")
    if not _NAME.fullmatch(name):
        (definition.one("Name") or definition).fail(f"{name!r} is no name", accepted="letters, digits and _")
    return name


def _tensors(
    definition: Element, extra: Element | None, side: str, draft: TargetDraft, op: str
) -> tuple[Tensor, ...]:
    more = {element.words("Name"): element for element in (extra.all(side) if extra else ())}
    found: list[Tensor] = []
    for element in definition.all(side):
        tensor_name = element.words("Name")
        datatypes = element.all("Datatype")
        supplement = more.get(tensor_name)
        if any(_bare(entry) == SPECIFIC for entry in datatypes):
            if supplement is None or not supplement.all("Datatype"):
                element.fail(
                    f"{tensor_name or 'a tensor'} of {op} is {SPECIFIC}, and no supplement says more",
                    accepted="a <SupplementalOpDef> with <Datatype>",
                )
            datatypes = supplement.all("Datatype")
        elif supplement is not None and supplement.all("Datatype"):
            datatypes = supplement.all("Datatype")
        if not datatypes:
            element.fail("no <Datatype>", accepted=f"QNN_DATATYPE_ and one of {', '.join(DATATYPES)}")
        for holder in (element, *((supplement,) if supplement else ())):
            for constraint in holder.all("Constraint"):
                draft.not_said(f"{op}: {tensor_name}: {' '.join(constraint.text.split())!r} is free text")
        shape = element.one("Shape")
        port = f"{'x' if side == 'Input' else 'y'}{len(found)}"
        found.append(
            Tensor(
                element=element,
                port=port if len(definition.all(side)) > 1 else port[0],
                storages=tuple(dict.fromkeys(word for word in map(_storage, datatypes) if word)),
                optional=not element.truth("Mandatory", default=True),
                repeated=element.truth("Repeated", default=False),
                static=element.truth("IsStaticTensor", default=False),
                rank=_rank(shape) if shape is not None else None,
            )
        )
    return tuple(found)


def _bare(element: Element) -> str:
    return element.text.strip().removeprefix("QNN_DATATYPE_")


def _storage(element: Element) -> str:
    word = _bare(element)
    if word in PLAIN:
        return ""
    if word not in DATATYPES:
        known = (*DATATYPES, *sorted(PLAIN))
        element.fail(
            f"{word!r} is no datatype{nearest(word, known, listed=False)}", accepted=f"such as {known[0]}"
        )
    return DATATYPES[word]


def _rank(shape: Element) -> int | None:
    word = shape.words("Rank")
    if not word:
        return None
    if word.isdigit():
        return int(word)
    if word not in RANKS:
        (shape.one("Rank") or shape).fail(f"{word!r} is no rank", accepted=", ".join(RANKS))
    return RANKS[word]


def _written(tensor: Tensor) -> str:
    return f"{tensor.port}{'*' if tensor.repeated else '?' if tensor.optional else ''}"


def _type(draft: TargetDraft, tensor: Tensor, lead: str, op: str) -> str:
    """The type of a tensor in the row of the first input's storage: the same one, else the tensor's first."""
    storage = lead if lead in tensor.storages else tensor.storages[0]
    if storage != lead and len(tensor.storages) > 1:
        draft.not_said(
            f"{op}: {tensor.port} beside {lead}: {', '.join(tensor.storages)}; the first is written"
        )
    # 32 bits are biases, which QNN wants symmetric.
    return draft.type(storage, storage=storage, symmetric=storage in ("i32", "u32"))


def _parameters(definition: Element, extra: Element | None, draft: TargetDraft, op: str) -> None:
    fixed = {
        element.words("Name")
        for element in (extra.all("Parameter") if extra else ())
        if element.truth("OnlyDefaultSupported", default=False)
    }
    for parameter in definition.all("Parameter"):
        name, default = parameter.words("Name"), parameter.words("Default")
        if name in fixed:
            draft.not_said(
                f"{op}: {name} is taken at its default alone, {json.dumps(default)}: add a predicate"
            )

"""The house keeps its floors (ARCHITECTURE.md): who may import whom, and what may be imported at all."""

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import networkx as nx
import pytest

ROOT: Final = Path(__file__).resolve().parents[1]

FLOORS: Final[Mapping[str, int]] = {
    "api": 5,
    "planner": 4,
    "planner.what_if": 4,
    "planner.accuracy": 3,
    "planner.analysis": 3,
    "planner.calibration": 3,
    "planner.cli": 4,
    "planner.bits": 4,
    "planner.client": 5,
    "planner.weight_conditioning": 4,
    "planner.constants": 3,
    "planner.conversion": 3,
    "planner.costs": 3,
    "planner.errors": 0,
    "planner.formats": 3,
    "planner.formats.annotated": 1,
    "planner.formats.litert": 1,
    "planner.formats.litert.writer": 3,
    "planner.formats.mlir": 1,
    "planner.formats.onnx": 1,
    "planner.formats.onnx.writer": 3,
    "planner.formats.stablehlo": 1,
    "planner.formats.stablehlo.writer": 3,
    "planner.formats.tosa": 1,
    "planner.formats.tosa.writer": 3,
    "planner.fusion": 2,
    "planner.factors": 1,
    "planner.file_names": 0,
    "planner.foreign_files": 0,
    "planner.installation": 0,
    "planner.interpreter": 3,
    "planner.checker": 2,
    "planner.ir": 0,
    "planner.lowering": 3,
    "planner.model_objects": 4,
    "planner.notebook": 0,
    "planner.ops": 0,
    "planner.pipeline": 4,
    "planner.plan_model": 4,
    "planner.plan_search": 4,
    "planner.plans": 2,
    "planner.propagation": 2,
    "planner.quantizing": 4,
    "planner.report": 4,
    "planner.target": 1,
    "planner.target_exchange": 1,
    "planner.target_tests": 4,
    "planner.torch": 4,
    "planner.training": 3,
    "planner.version": 0,
}

# Folders of a package, lowest first: a module imports its own folder or a lower one. Modules beside them
# may import all of them, and no folder imports such a module.
FOLDERS: Final[Mapping[str, tuple[str, ...]]] = {
    "planner.propagation": ("selection", "network", "solver", "parameters", "result"),
}

# A library is known to these modules alone; everybody else gets our own records.
LIBRARIES: Final[Mapping[str, tuple[str, ...]]] = {
    "ai_edge_litert": ("planner.target_tests.engines.run_litert",),
    "ethosu": ("planner.target_tests.engines.run_vela",),
    "fastapi": ("api",),
    "flatbuffers": ("planner.formats.litert.writer.flatbuffer",),
    "highspy": ("planner.propagation.solver.highs",),
    "httpx": ("planner.client",),
    "networkx": ("planner.plans.networkx_graph",),
    "onnx": ("planner.formats.onnx", "planner.target_tests.engines.run_qnn"),
    "onnxruntime": (
        *("planner.calibration", "planner.interpreter", "planner.formats.onnx.sessions"),
        "planner.target_tests.engines.run_qnn",
    ),
    "pydantic": (
        "planner.formats.annotated",
        "planner.plans",
        "planner.target",
        "planner.training.document",
        "api",
    ),
    "rich": ("planner.cli",),
    "torch": ("planner.torch",),
    "torchao": ("planner.torch.pt2e",),
    "tosa_reference_model": ("planner.target_tests.engines.run_tosa",),
    "tflite": ("planner.formats.litert.writer.flatbuffer",),
    "typer": ("planner.cli",),
    "xdsl": ("planner.formats.mlir", "planner.formats.stablehlo.reader", "planner.formats.tosa.reader"),
    "yaml": ("planner.target",),
}

# The checker shares no code with what it checks but the readers of rows (docs/specification.md, section 6).
CHECKER: Final = "planner.checker.check"
CHECKED: Final = (
    "planner.fusion",
    "planner.propagation",
)

# Modules whose functions may import: the command (help in no time).
LAZY: Final = ("planner.cli",)

# Modules that import by name: faces that load heavy libraries on first use, and code that the user names.
BY_NAME: Final = {
    "api.jobs.executors": "distributed",
    "api.planning.plugins": "functions of the allow-list",
    "api.server.doctor": "distributed",
    "api.tracing": "OpenTelemetry, an extra",
    "planner": "the face",
    "planner.formats.annotated": "pydantic",
    "planner.calibration.sources.images": "Pillow, an extra",
    "planner.formats": "all formats",
    "planner.factors.form": "onnx, for models whose sizes are fixed late",
    "planner.cli.options": "the user's module of functions",
    "planner.cli.service": "the service, which is an extra",
    "planner.formats.litert.schema": "tflite and flatbuffers, an extra",
    "planner.formats.mlir": "xdsl",
    "planner.plans": "xdsl",
    "planner.ir.topology": "networkx, for an error",
    "planner.formats.onnx.structure.functions_to_subgraphs": "networkx, for few files",
    "planner.propagation.selection.signs": "networkx, for few plans",
    "planner.model_objects": "torch.onnx, of a caller who has it",
    "planner.formats.stablehlo.reader.custom_form": "jaxlib, an extra",
    "planner.torch": "PyTorch, an extra",
}
MODULES: Final = 16
"""Of one folder at most: the tree is the glossary, and a longer list is no glossary."""


@cache
def modules() -> Mapping[str, ast.Module]:
    """Every module of the wheel, parsed, by its dotted name."""
    found = {}
    for package in ("planner", "api"):
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = ast.parse(path.read_text(encoding="utf-8"), str(path))
            make_absolute(found[name], parts[:-1])
    return found


def make_absolute(tree: ast.Module, package: tuple[str, ...]) -> None:
    """Give relative imports their whole names: a wheel calls the service otherwise (setup.py)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            is_own = package[0] == "api" and (node.level > 0 or str(node.module).partition(".")[0] == "api")
            assert (node.level > 0) == is_own, f"line {node.lineno}: relative names are for the service alone"
            if node.level:
                above = package[: len(package) - node.level + 1]
                node.module, node.level = ".".join((*above, *filter(None, [node.module]))), 0


@cache
def imports(tree: ast.Module, *, inside_functions: bool = False) -> tuple[tuple[str, int], ...]:
    """Modules that a module imports, with their lines; `if TYPE_CHECKING:` does not count."""
    return tuple(_imports(tree, inside_functions=inside_functions))


def _imports(tree: ast.Module, *, inside_functions: bool) -> Iterator[tuple[str, int]]:
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) and not inside_functions:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield (whole if whole in modules() else str(node.module)), node.lineno
        waiting.extend(ast.iter_child_nodes(node))


def within(name: str, packages: tuple[str, ...]) -> bool:
    """Whether a module is one of these, or inside one."""
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def floor(name: str) -> int:
    """Floor of a module: that of the longest entry it lies in."""
    inside = [entry for entry in FLOORS if within(name, (entry,)) and (entry != "planner" or name == entry)]
    assert inside, f"{name} is on no floor: give its package one in FLOORS and in ARCHITECTURE.md"
    return FLOORS[max(inside, key=len)]


def is_package(name: str) -> bool:
    return (ROOT / Path(*name.split(".")) / "__init__.py").exists()


def ours(name: str) -> bool:
    return within(name, ("planner", "api"))


def test_a_module_imports_its_own_floor_or_below():
    upwards = [
        f"{name}:{line} (floor {floor(name)}) imports {other} (floor {floor(other)})"
        for name, tree in modules().items()
        for other, line in imports(tree, inside_functions=True)
        if ours(other) and floor(other) > floor(name)
    ]
    assert upwards == []


@pytest.mark.parametrize("package", FOLDERS)
def test_a_module_imports_its_own_folder_or_a_lower_one(package):
    order = [f"{package}.{folder}" for folder in FOLDERS[package]]
    known = {name: folder(name, order) for name in modules() if within(name, (package,))}
    assert {name.rpartition(".")[0] for name, at in known.items() if at == len(order)} <= {package, "planner"}
    upwards = [
        f"{name}:{line} imports {other}"
        for name, at in known.items()
        for other, line in imports(modules()[name], inside_functions=True)
        if known.get(other, 0) > at
    ]
    assert upwards == []


def folder(name: str, order: Sequence[str]) -> int:
    """Place in an order of the folder that a module lies in; behind the last where it is in none."""
    return next((at for at, one in enumerate(order) if within(name, (one,))), len(order))


def test_no_module_imports_itself_through_others():
    graph = nx.DiGraph(
        (name, other) for name, tree in modules().items() for other, _ in imports(tree) if ours(other)
    )
    assert [sorted(group) for group in nx.strongly_connected_components(graph) if len(group) > 1] == []


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_is_known_only_where_it_belongs(library):
    strangers = [
        f"{name}:{line}"
        for name, tree in modules().items()
        for other, line in imports(tree, inside_functions=True)
        if within(other, (library,)) and not within(name, LIBRARIES[library])
    ]
    assert strangers == []


def test_functions_do_not_import():
    hidden = [
        f"{name}:{line} imports {other} in a function"
        for name, tree in modules().items()
        if not within(name, LAZY)
        for other, line in set(imports(tree, inside_functions=True)) - set(imports(tree))
    ]
    assert hidden == []


def test_only_faces_import_by_name():
    """`importlib` hides an import from the tests above, so every user of it is listed with what it loads."""
    users = {
        name
        for name, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute) and "import_module" in ast.unparse(node)
    }
    assert users == set(BY_NAME)


def test_a_folder_has_few_modules():
    folders: dict[str, list[str]] = {}
    for name, tree in modules().items():
        if ast.get_docstring(tree) is not None and not is_package(name):
            folders.setdefault(name.rpartition(".")[0], []).append(name)
    crowded = {folder: len(names) for folder, names in folders.items() if len(names) > MODULES}
    assert crowded == {}


def test_only_the_command_uses_the_face():
    users = [
        name
        for name, tree in modules().items()
        for other, _ in imports(tree, inside_functions=True)
        if other == "planner" and not within(name, ("planner.cli", "api"))
    ]
    assert users == []


def test_the_checker_shares_nothing_with_what_it_checks():
    assert CHECKER in modules()
    reached, waiting = set(), [CHECKER]
    while waiting:
        name = waiting.pop()
        if name in reached or name not in modules():
            continue
        reached.add(name)
        waiting.extend(other for other, _ in imports(modules()[name], inside_functions=True))
    assert [name for name in sorted(reached) if within(name, CHECKED)] == []


def test_plans_are_checked_by_one_entry():
    """`pipeline.check` recomputes the warnings too; nobody checks rules alone."""
    users = [
        name
        for name, tree in modules().items()
        if not within(name, ("planner.checker",))
        and any(within(other, (CHECKER,)) for other, _ in imports(tree, inside_functions=True))
    ]
    assert users == ["planner.plan_model"]


@pytest.mark.parametrize("name", ["planner", "planner.cli.app"])
def test_importing_the_face_or_the_command_is_light(name):
    heavy = ("highspy", "numpy", "onnx", "onnxruntime", "pydantic", "rich", "xdsl", "yaml")
    code = f"import sys, {name}; print(*(set({heavy!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == []


def test_a_plan_loads_nothing_for_rare_things():
    heavy = ("networkx", "numpy.ma", "xdsl")
    code = (
        "import sys, planner; model = planner.load_model('examples/digits/digits.onnx'); "
        "stats = planner.calibrate(model, 'examples/digits/calibration.npz'); "
        "planner.plan(planner.annotate(model, stats=stats), 'onnxruntime-cpu'); "
        f"print(*(set({heavy!r}) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == []

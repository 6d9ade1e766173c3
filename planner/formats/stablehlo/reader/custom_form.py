"""StableHLO text in custom form made generic, by jaxlib's parser and printer where it is installed.

Nothing else of jaxlib is used, and no module of it is loaded before it is needed. Its verifier runs on the
way, over generic form too: StableHLO's refusals are ours. Source: jaxlib's MLIR bindings; extra
`[stablehlo]`.
"""

import re
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from planner.errors import ModelError
from planner.formats.stablehlo.reader.regular_form import regular
from planner.installation import install_command

_MARK: Final = re.compile(r"(?<![\"\w.#!@])(?:stablehlo|chlo)\.[a-z0-9_]++(?!\s*=)")
_GENERIC_MARK: Final = re.compile(r'"(?:stablehlo|chlo)\.[a-z0-9_]++"\s*\(')
# Types per block, and our own types and ops of the quant dialect, which jaxlib does not know.
_UNKNOWN: Final = re.compile(
    r"!q(?:uant|plan)\.(?!uniform<)|!qplan|\bquant\.(?!uniform|[qds]cast)[a-z]|:[a-z]\w*:\{"
)
_STRING: Final = re.compile(r'"(?:[^"\\\n]++|\\.)*+"|//[^\n]*')
_PLACE: Final = re.compile(r'error: "-":(\d+:\d+): (.*)')
_LOADS_QUANT: Final = "builtin.module(vhlo-legalize-to-stablehlo)"
_RESCALE: Final = re.compile(r"(?<!\")\btosa\.rescale\s+(%[^{}:\n]*?)\s*\{([^{}]*)\}")
_MODE: Final = re.compile(r"rounding_mode\s*=\s*([A-Z_]+)")


def readable(text: str) -> str:
    """Give a text that our parser reads: itself, or its generic form where it has StableHLO's custom forms.

    `tosa.rescale`, which jaxlib does not know, is made generic first. Places in later errors are those of
    the generic form. A text in generic form stays as it is; where jaxlib is installed, it is verified, unless
    it has types per block or our own types, which StableHLO has no say on.

    Raises:
      ModelError: as `generic_form`.
    """
    if "tosa.rescale " in text:
        text = _RESCALE.sub(_generic_rescale, text)
    if _MARK.search(_blank(text)):
        plain = None if _UNKNOWN.search(text) else regular(text)
        if plain is None or is_available():
            made = generic_form(text)
        return made if plain is None else plain
    if _GENERIC_MARK.search(text) and not _UNKNOWN.search(text) and is_available():
        generic_form(text)
    return text


def _blank(text: str) -> str:
    """The text with strings and comments blotted out, every place kept."""
    return _STRING.sub(lambda found: " " * len(found[0]), text)


def _generic_rescale(match: re.Match[str]) -> str:
    return f'"tosa.rescale"({match[1]}) {{{_MODE.sub(_mode, match[2])}}}'


def _mode(match: re.Match[str]) -> str:
    return f"rounding_mode = #tosa.rounding_mode<{match[1]}>"


def is_available() -> bool:
    """Whether jaxlib is installed."""
    return find_spec("jaxlib") is not None


def generic_form(text: str) -> str:
    """Print a module in generic form.

    Raises:
      ModelError: `line:column: ` and jaxlib's message, or that there is no jaxlib.
    """
    if not is_available():
        match = _MARK.search(_blank(text))
        at = match.start() if match else 0
        line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
        raise ModelError(
            f"{line}:{column}: StableHLO ops in custom form are read through jaxlib, which is not installed",
            hint=f"{install_command('stablehlo')}, or write the module in generic form "
            "(mlir-opt --mlir-print-op-generic)",
        )
    ir, context, _ = bindings()
    with context, ir.Location.unknown():
        try:
            module = ir.Module.parse(text)
        except ir.MLIRError as error:
            match = _PLACE.search(str(error))
            message = f"{match[1]}: {match[2]}" if match else " ".join(str(error).split())
            raise ModelError(message) from None
        # Locations may name values; jaxlib gives each op one, so they are kept where the text has any.
        is_located = "loc(" in text
        return str(module.operation.get_asm(print_generic_op_form=True, enable_debug_info=is_located))


@cache
def bindings() -> tuple[Any, Any, Any]:
    """The bindings, a context that knows StableHLO (a pass that needs `quant` loads that), and its module."""
    ir = import_module("jaxlib.mlir.ir")
    stablehlo = import_module("jaxlib.mlir.dialects.stablehlo")
    manager = import_module("jaxlib.mlir.passmanager").PassManager
    registry = ir.DialectRegistry()
    import_module("jaxlib.mlir._mlir_libs._jax_mlir_ext").register_dialects(registry)
    stablehlo.register_stablehlo_passes()
    context = ir.Context()
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    stablehlo.register_dialect(context)
    context.allow_unregistered_dialects = True
    with context, ir.Location.unknown():
        manager.parse(_LOADS_QUANT).run(ir.Module.parse("module {}").operation)
    return ir, context, stablehlo

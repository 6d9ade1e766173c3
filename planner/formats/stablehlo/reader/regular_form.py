"""StableHLO text in custom form made generic without any tool, where every op's form is regular.

Regular are operands with one type or a function type behind them, and the lists of numbers that data-movement
operators, `compare`, `iota` and `dot_general` have in front of it. SSA names stay. A text with any other form
is left to jaxlib.
Source: StableHLO, assembly formats of `StablehloOps.td`.
"""

import re
from collections.abc import Mapping
from typing import Final

_STRING: Final = r'"(?:[^"\\\n]|\\.)*+"'
_SKIPPED: Final = re.compile(rf"{_STRING}|//[^\n]*")
_OP: Final = re.compile(r"(?<![\"\w.#!@])(?:stablehlo|chlo)\.([a-z0-9_]++)(?!\s*=)([^\n]*)")
_NAME: Final = re.compile(r"(?<![\"\w.#!@])((?:stablehlo|chlo)\.[a-z0-9_]++)")
_OPERANDS: Final = re.compile(r"\s*(%[\w.$#-]+(?:\s*,\s*%[\w.$#-]+)*)\s*")
_LOCATION: Final = re.compile(r"\s+loc\((?:[^()\"]|\"(?:[^\"\\]|\\.)*\"|\([^()]*\))*\)\s*$")
_LIST: Final = r"\[([-\d\s,]*)\]"
_CONSTANT: Final = re.compile(r"\s*(dense<(?:\"[^\"]*\"|[^\">])*>)\s*:\s*(\S.*)")
_COMPARE: Final = re.compile(r"\s*([A-Z]+),\s*(%[^:]*?)(?:,\s*([A-Z]+))?\s*:\s*(\(.*)")
_IOTA: Final = re.compile(r"\s*dim\s*=\s*(\d+)\s*:\s*(\S.*)")
_SLICE: Final = re.compile(r"\s*\[([-\d:,\s]*)\]\s*")
_DOT: Final = re.compile(
    rf"\s*,(?:\s*batching_dims\s*=\s*{_LIST}\s*x\s*{_LIST}\s*,)?\s*contracting_dims\s*=\s*{_LIST}\s*x\s*{_LIST}"
    r"\s*(?:,\s*precision\s*=\s*\[[A-Z0-9_,\s]*\])?\s*"
)
_LISTS: Final[Mapping[str, Mapping[str, str]]] = {
    "broadcast_in_dim": {"dims": "broadcast_dimensions"},
    "pad": {"low": "edge_padding_low", "high": "edge_padding_high", "interior": "interior_padding"},
    "reverse": {"dims": "dimensions"},
    "transpose": {"dims": "permutation"},
}
_SAME: Final = frozenset({
    "abs", "add", "and", "atan2", "cbrt", "ceil", "clamp", "cosine", "count_leading_zeros", "divide", "erf",
    "exponential", "exponential_minus_one", "floor", "log", "log_plus_one", "logistic", "maximum", "minimum",
    "multiply", "negate", "not", "optimization_barrier", "or", "popcnt", "power", "remainder",
    "round_nearest_afz", "round_nearest_even", "rsqrt", "shift_left", "shift_right_arithmetic",
    "shift_right_logical", "sign", "sine", "sqrt", "subtract", "tan", "tanh", "xor",
})  # fmt: skip
_PLAIN: Final = _SAME | {
    *("bitcast_convert", "convert", "dot", "is_finite", "reshape", "uniform_dequantize", "uniform_quantize"),
}


def regular(text: str) -> str | None:
    """The text with its ops in generic form, or None where one of them has a form that is not regular."""
    hidden = [match.span() for match in _SKIPPED.finditer(text)]
    blank = _SKIPPED.sub(lambda found: " " * len(found[0]), text)
    parts, at = [], 0
    for match in _OP.finditer(blank):
        line = text[match.start(2) : match.end(2)].partition("//")[0] if hidden else match[2]
        location = _LOCATION.search(line)
        rest = line[: location.start()] if location else line.rstrip()
        name = text[match.start() : match.start(2)]
        made = _made(name, match[1], rest)
        if made is None:
            return None
        parts += [text[at : match.start()], made]
        at = match.start(2) + len(rest)
    found = "".join([*parts, text[at:]])
    return found if not _NAME.search(_SKIPPED.sub("", found)) else None


def _made(name: str, plain: str, rest: str) -> str | None:
    """An op in generic form; None where its form is another."""
    if plain == "constant":
        found = _CONSTANT.fullmatch(rest)
        return f'"{name}"() {{value = {found[1]} : {found[2]}}} : () -> {found[2]}' if found else None
    if plain == "iota":
        found = _IOTA.fullmatch(rest)
        return f'"{name}"() {{iota_dimension = {found[1]} : i64}} : () -> {found[2]}' if found else None
    if plain == "compare":
        return _compare(name, rest)
    operands = _OPERANDS.match(rest)
    if operands is None:
        return None
    items, end = _items(plain, rest[operands.end() :])
    if items is None:
        return None
    return _typed(name, plain, operands[1], items, rest[operands.end() + end :])


def _typed(name: str, plain: str, operands: str, items: str, behind: str) -> str | None:
    head, count = f'"{name}"({operands}){items}', operands.count(",") + 1
    colon, _, kinds = behind.partition(":")
    kinds = kinds.strip()
    if colon.strip() or not kinds or "{" in kinds:
        return None
    if kinds.startswith("("):
        return f"{head} : {kinds}"
    if plain == "select":
        flag, _, kind = kinds.partition(", ")
        return f"{head} : ({flag}, {kind}, {kind}) -> {kind}" if kind and ", " not in kind else None
    if plain in _SAME or plain == "reverse":
        return f"{head} : ({', '.join([kinds] * count)}) -> {kinds}"
    return None


def _items(plain: str, rest: str) -> tuple[str | None, int]:
    """Attributes that stand behind operands, as a dictionary, and how long they are; None for others."""
    if plain in _PLAIN or plain == "select":
        return "", 0
    if plain == "concatenate":
        found = re.match(r"\s*,\s*dim\s*=\s*(\d+)\s*", rest)
        return (f" {{dimension = {found[1]} : i64}}", found.end()) if found else (None, 0)
    if plain == "slice":
        return _slice(rest)
    if plain == "dot_general":
        found = _DOT.match(rest)
        if found is None:
            return None, 0
        keys = ("lhs_batching", "rhs_batching", "lhs_contracting", "rhs_contracting")
        told = ", ".join(f"{key}_dimensions = [{found[i + 1] or ''}]" for i, key in enumerate(keys))
        return f" {{dot_dimension_numbers = #stablehlo.dot<{told}>}}", found.end()
    if plain not in _LISTS:
        return None, 0
    lists: list[str] = []
    end = 0
    for key, ours in _LISTS[plain].items():
        found = re.compile(rf"\s*,\s*{key}\s*=\s*{_LIST}\s*").match(rest, end)
        if found is None:
            return None, 0
        lists.append(f"{ours} = {_array(found[1])}")
        end = found.end()
    return f" {{{', '.join(lists)}}}", end


def _slice(rest: str) -> tuple[str | None, int]:
    found = _SLICE.match(rest)
    if found is None:
        return None, 0
    ranges = [item.split(":") for item in found[1].split(",") if item.strip()]
    if any(len(item) not in (2, 3) for item in ranges):
        return None, 0
    columns = [[item[0] for item in ranges], [item[1] for item in ranges]]
    columns.append([item[2] if len(item) == 3 else "1" for item in ranges])
    keys = ("start_indices", "limit_indices", "strides")
    told = [f"{key} = {_array(','.join(column))}" for key, column in zip(keys, columns, strict=True)]
    return f" {{{', '.join(told)}}}", found.end()


def _compare(name: str, rest: str) -> str | None:
    found = _COMPARE.fullmatch(rest)
    if found is None:
        return None
    told = f"comparison_direction = #stablehlo<comparison_direction {found[1]}>"
    if found[3]:
        told += f", compare_type = #stablehlo<comparison_type {found[3]}>"
    return f'"{name}"({found[2].strip()}) {{{told}}} : {found[4]}'


def _array(numbers: str) -> str:
    return f"array<i64: {numbers}>" if numbers.strip() else "array<i64>"

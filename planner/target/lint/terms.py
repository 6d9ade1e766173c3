"""The terms that predicates ask for, and where each stands in the file. Read by the checks of lint."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from planner.errors import InputError, LimitError
from planner.ir.graph import Graph
from planner.target.conditions.grammar import SUBJECT, is_condition, parse_condition, refs_of
from planner.target.expressions import Ref
from planner.target.predicates import bits_unsaid, failing, is_of_facts
from planner.target.records import Target

NOTHING: Final = Graph("nothing", {}, (), (), ())


def place(target: Target, source: str, section: str, key: str) -> str:
    """The place of a predicate: its own line and column, else (a default) those of its row or fusion."""
    own = f"{source} {section} {key}"
    return own if own in target.places else source


def asked_of(predicates: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The ports and ops that predicates ask about, each with the key of its predicate."""
    for key, owner, _ in terms_of(predicates):
        yield key, owner


def terms_of(predicates: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The terms of predicates: the key, the port or op, and what is asked of it ("" of a port alone)."""
    for key, wanted in predicates.items():
        if is_of_facts(key, wanted):
            continue
        if key != "holds":
            owner, _, what = key.rpartition(".")
            yield key, owner or key, what if owner else ""
        for text in wanted if isinstance(wanted, list | tuple) else [wanted]:
            for ref in _refs(key, text):
                yield key, ref.port, ref.attribute


def _refs(key: str, text: Any) -> tuple[Ref, ...]:
    if key != "holds" and not is_condition(text):
        return ()
    try:
        found = refs_of(parse_condition(text, of_key=key != "holds"))
    except InputError:
        return ()
    return tuple(ref for ref in found if ref != SUBJECT)


def predicate_problem(key: str, wanted: Any, ports: Mapping[str, str], *, of_row: bool = False) -> str:
    """Say why a predicate cannot be read; "" where it can. Only a row knows bits."""
    if key == "min_bits":
        bits = wanted.values() if isinstance(wanted, Mapping) else [None]
        whole = all(isinstance(count, int) and not isinstance(count, bool) for count in bits)
        return "" if whole else f"min_bits is {wanted!r}; write {{PORT: BITS}}"
    try:
        known = bits_unsaid if of_row else None
        failing({key: wanted}, ports=ports, ops=(), attributes={}, graph=NOTHING, bits=known)
    except LimitError:  # L044's
        return ""
    except InputError as error:
        return str(error)
    return ""

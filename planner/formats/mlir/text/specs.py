"""Specs of regions, and the facts of values and ports in them.

A spec shows the facts of a port. Read back: a value has the facts of its definition's spec, else those its
consumers' specs agree on; a port has facts of its own where its spec says otherwise. Facts that this rule
would get wrong are written out, so modules lose nothing.
"""

from collections.abc import Mapping, Sequence

from planner.ir.graph import Facts, Region


def shown_facts(region: Region, facts: Mapping[str, Facts]) -> tuple[tuple[Facts, ...], tuple[Facts, ...]]:
    """Facts to show at each port of a region: the port's own, else its value's."""
    inputs, outputs = region.input_facts, region.output_facts
    return (
        tuple([(inputs[i] if inputs else ()) or facts.get(n, ()) for i, n in enumerate(region.inputs)]),
        tuple([(outputs[i] if outputs else ()) or facts.get(n, ()) for i, n in enumerate(region.outputs)]),
    )


def value_facts(
    regions: Sequence[Region], shown: Sequence[tuple[tuple[Facts, ...], tuple[Facts, ...]]]
) -> dict[str, Facts]:
    """Facts of values as the specs tell them."""
    found: dict[str, Facts] = {}
    for region, (_, outputs) in zip(regions, shown, strict=True):
        found |= {name: facts for name, facts in zip(region.outputs, outputs, strict=True) if name and facts}
    read: dict[str, Facts] = {}
    for region, (inputs, _) in zip(regions, shown, strict=True):
        for name, facts in zip(region.inputs, inputs, strict=True):
            if name and facts and name not in found:
                # () rather than nothing where readers disagree, so that a later reader does not decide alone.
                read[name] = facts if read.get(name, facts) == facts else ()
    return {**found, **{name: facts for name, facts in read.items() if facts}}


def port_facts(names: Sequence[str], shown: Sequence[Facts], facts: Mapping[str, Facts]) -> tuple[Facts, ...]:
    """Facts that ports have of their own, () where none has any."""
    own = tuple(
        [() if spec == facts.get(name, ()) else spec for name, spec in zip(names, shown, strict=True)]
    )
    return own if any(own) else ()

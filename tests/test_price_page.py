"""docs/price.md: its example, run, and its formula beside the prices that plans name."""

import math
import re
from pathlib import Path

PAGE = Path("docs/price.md").read_text(encoding="utf-8")


def test_the_example_adds_up():
    names: dict[str, object] = {}
    exec(re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1], names)  # noqa: S102
    cheap, dear = names["cheap"], names["dear"]
    assert [(rescale.kind, rescale.elements) for rescale in cheap.rescales] == [
        ("quantize", 64),
        ("requantize", 384),
        ("dequantize", 10),
    ]
    assert cheap.cost == 64 + 384 + 10
    assert [rescale.kind for rescale in dear.rescales] == ["quantize", "dequantize"]
    fine = cheap.values["stem/relu_out"].type.scale
    lost = dear.values["stem/relu_out"].bits_lost
    assert lost == round(math.log2(0.02795201912522316) * 1024) / 1024 - round(math.log2(fine) * 1024) / 1024
    assert dear.cost == 64 * 100 + 10 * 100 + 2 * 1536 * 2.0 * (lost - 0.5)
    assert f"{dear.cost:.0f}" in PAGE
    assert f"{lost:.3f}" in PAGE

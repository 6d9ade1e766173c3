"""Records of a target: what they refuse, beside the nearest that they take."""

import pytest

from planner.errors import TargetError
from planner.target.borders import border_rows
from planner.target.records import READERS, Files


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"opset": (1, 1)},
        {"opset": (7, 21)},
        *({"layout": layout} for layout in ("channels_first", "channels_last")),
        {"sizes": "fixed", "runtime": "onnxruntime"},
        *({"reader": reader} for reader in READERS),
    ],
)
def test_files_that_a_device_reads(given):
    files = Files(**given)
    assert {key: getattr(files, key) for key in given} == given
    assert files.is_for_cpu_provider == (given.get("reader") in (None, "onnxruntime"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"opset": (0, 1)}, "opset [0, 1] is not the least and the greatest version"),
        ({"opset": (1,)}, "opset [1] is not the least and the greatest version"),
        ({"opset": (1, 2, 3)}, "opset [1, 2, 3] is not the least and the greatest version"),
        ({"opset": (True, 2)}, "opset [True, 2] is not the least and the greatest version"),
        ({"opset": (9, 8)}, "opsets from 9 to 8; the lesser first"),
        ({"layout": "rows"}, "layout 'rows' is neither channels_first nor channels_last"),
        ({"sizes": "open"}, "sizes 'open' are not fixed; accepted: fixed"),
        ({"runtime": "tvm"}, "runtime 'tvm' is not installed here; accepted: onnxruntime"),
        ({"reader": "nobody"}, "reader 'nobody' is not known; accepted: "),
    ],
)
def test_files_that_no_device_reads_are_refused(given, said):
    with pytest.raises(TargetError) as refusal:
        Files(**given)
    assert str(refusal.value).startswith(said)


@pytest.mark.parametrize(
    ("formats", "requested", "written"),
    [
        ((), (), ()),
        (("tosa",), (), ("tosa",)),
        (("tosa", "litert"), (), ()),
        (("tosa",), ("litert",), ("litert",)),
        (("tosa", "litert"), ["litert", "tosa"], ("litert", "tosa")),
    ],
)
def test_a_plan_is_written_as_requested_or_as_the_device_alone_reads_it(formats, requested, written):
    assert Files(formats=formats).to_write(requested) == written


def test_rows_of_borders_keep_their_keys():
    """Files of plans name them."""
    rows = [row for rows in border_rows("litert").values() for row in rows]
    assert [row.key for row in rows] == ["qplan::Begin@1", "qplan::End@2", "qplan::Join@3"]
    assert {row.requantize for row in rows} == {"litert"}

"""Fuzzing guided by coverage, `benchmarks.guided_fuzz`: what it tells of a campaign, and a short one."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import guided_fuzz

ENDED = "INFO: seed corpus\n#1234\tDONE   cov: 56 ft: 99 corp: 7/80b lim: 4 exec/s: 10 rss: 90Mb\n"
CUT = "INFO: seed corpus\n==1== ERROR: libFuzzer: deadly signal\n"


SCRIPT = """#!/bin/sh
printf '%s' "$SAID" >&2
test -z "$FOUND" || touch "$FOUND"
exit "$CODE"
"""


@pytest.fixture
def campaign(tmp_path, monkeypatch):
    """`campaign(said, found)`: one whose processes say and find this."""
    (tmp_path / "lib" / "python3" / "site-packages").mkdir(parents=True)
    monkeypatch.setattr(guided_fuzz, "PACKAGES", tmp_path / "lib")
    fuzzer = tmp_path / "fuzzer"
    fuzzer.write_text(SCRIPT)
    fuzzer.chmod(0o700)
    monkeypatch.setattr(guided_fuzz.sys, "executable", str(fuzzer))
    (tmp_path / "json-crash-of-before").write_bytes(b"")

    def run(said: str, found: str = "", *, seconds: int = 60) -> guided_fuzz.Found:
        monkeypatch.setenv("SAID", said)
        monkeypatch.setenv("CODE", "0" if said == ENDED else "77")
        monkeypatch.setenv("FOUND", str(tmp_path / found) if found else "")
        return replace(guided_fuzz.campaign("json", seconds, tmp_path), cpu=0.0)

    return run


def test_a_campaign_that_ended_is_counted(campaign):
    assert campaign(ENDED) == guided_fuzz.Found(1234, 56, 7, ())


def test_a_long_campaign_is_several_processes(campaign):
    seconds = 3 * guided_fuzz.ROUND_S - 1
    assert campaign(ENDED, seconds=seconds) == guided_fuzz.Found(3 * 1234, 56, 7, ())


def test_bytes_that_ended_a_scanner_are_findings_of_this_campaign_alone(campaign, tmp_path):
    found = campaign(CUT, "json-crash-0", seconds=3 * guided_fuzz.ROUND_S)
    assert found == guided_fuzz.Found(0, 0, 0, (tmp_path / "json-crash-0",), CUT.splitlines()[-1])


def test_what_was_counted_before_a_process_ended_too_early_stays():
    before = guided_fuzz.Found(1234, 56, 7, (), cpu=9.0)
    assert before + guided_fuzz.Found(0, 0, 0, (Path("x"),), "deadly signal", 1.0) == guided_fuzz.Found(
        1234, 56, 7, (Path("x"),), "deadly signal", 10.0
    )


def test_a_process_that_says_nothing_is_told_by_its_code(campaign):
    assert campaign("").said == "exit code 77"


def test_the_table_has_a_row_for_each_scanner():
    found = {
        "json": guided_fuzz.Found(4321, 56, 7, (Path("json-crash-0"),), cpu=65.0),
        "onnx": guided_fuzz.Found(0, 0, 0, (), "deadly signal"),
    }
    assert guided_fuzz.lines(found, 180)[2:] == [
        "| json | 3 min | 1 min | 4,321 | 56 | 7 | 1 |",
        "| onnx | 3 min | 0 min | 0 | 0 | 0 | deadly signal |",
    ]


@pytest.mark.soak
def test_a_short_campaign_finds_nothing(tmp_path):
    if not guided_fuzz.PACKAGES.exists():
        pytest.skip("no .oracles/atheris: run make .oracles/atheris/.made")
    found = guided_fuzz.campaign("json", 2, tmp_path)
    assert (found.said, found.findings) == ("", ())
    assert found.runs > 100
    assert found.branches > 10

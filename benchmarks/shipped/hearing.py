"""Tasks of sound: whether somebody speaks (silero), and whether a wake word is said (openwakeword)."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from benchmarks.shipped.data import CALIBRATION, Made, Run, Sample, random
from benchmarks.shipped.metrics import auc
from benchmarks.shipped.sounds import RATE, Speaker, with_noise
from benchmarks.shipped.texts import phrases

Array = NDArray[Any]
Wheels = Callable[[str], Path]
CHUNK: Final = 512
CONTEXT: Final = 64
LOUD: Final = 0.01
"""Root mean square of a chunk of clean sound from which somebody speaks."""
WORDS: Final = ("alexa", "hey jarvis", "hey mycroft")
"""Wake words whose heads are in the wheel; a sample of one is a true one for its own head."""
SAID: Final = 14
"""Clips of each wake word, and as many of other words."""
WINDOW: Final = 76
STEP: Final = 8
HEARD: Final = 16


@functools.cache
def _speaker(wheel: Path) -> Speaker:
    return Speaker(wheel)


def _sentences(speaker: Speaker, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Clean sound of sentences with pauses, and the same with noise."""
    drawn = phrases(rng, 40)
    parts = []
    for _ in range(count):
        parts += [
            speaker.say(next(drawn), rng) * rng.uniform(0.3, 1.0),
            np.zeros(int(rng.uniform(0.4, 2) * RATE), np.float32),
        ]
    clean = np.concatenate(parts)
    noisy = [with_noise(part, rng, (0.005, 0.06)) for part in np.array_split(clean, count)]
    return clean, np.concatenate(noisy)


def voice_activity(wheels: Wheels) -> Made:
    """Silero's voice activity: a chunk of 32 ms and a state in, the probability of speech and a state out."""
    model = wheels("silero-vad") / "silero_vad" / "data" / "silero_vad_16k_op15.onnx"
    speaker, rng = _speaker(wheels("espeakng-loader")), random(31)
    _, heard = _sentences(speaker, 6, rng)
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    feeds = _stream(lambda feed: session.run(None, dict(feed)), heard)[0]
    clean, noisy = _sentences(speaker, 24, rng)
    energy = [float(np.sqrt(np.square(part).mean())) for part in _chunks(clean)]

    def score(run: Run) -> float:
        return auc(np.asarray(_stream(run, noisy)[1]), np.asarray(energy) > LOUD)

    step = max(1, len(feeds) // CALIBRATION)
    return Made(model, feeds[::step][:CALIBRATION], score, feeds[len(feeds) // 2])


def _chunks(sound: Array) -> list[Array]:
    return [sound[at : at + CHUNK] for at in range(0, sound.size - CHUNK + 1, CHUNK)]


def _stream(run: Run, sound: Array) -> tuple[list[Sample], list[float]]:
    """Samples and probabilities of a sound, chunk by chunk, the model's own states handed on."""
    state, before = np.zeros((2, 1, 128), np.float32), np.zeros(CONTEXT, np.float32)
    feeds, found = list[Sample](), []
    for chunk in _chunks(sound):
        heard = np.concatenate([before, chunk])[None]
        feeds.append({"input": heard, "state": state, "sr": np.asarray(RATE, np.int64)})
        probability, state = run(feeds[-1])
        found.append(float(probability.ravel()[0]))
        before = chunk[-CONTEXT:]
    return feeds, found


def wake_words(wheels: Wheels) -> Made:
    """Embedding of speech for wake words; spectrum before and heads behind are float on every side."""
    folder = wheels("openwakeword") / "openwakeword" / "resources" / "models"
    speaker, rng = _speaker(wheels("espeakng-loader")), random(32)
    spectrum = _session(folder / "melspectrogram.onnx")
    heads = [_session(folder / f"{word.replace(' ', '_')}_v0.1.onnx") for word in WORDS]
    drawn = phrases(rng, 24)
    said = [next(drawn) for _ in range(CALIBRATION // 4)]
    windows = [one for text in said for one in _windows(spectrum, _clip(speaker, text, rng))]
    clips = [(at, word) for at, word in enumerate(WORDS) for _ in range(SAID)]
    clips += [(-1, next(drawn)) for _ in range(SAID)]
    spectra = [_windows(spectrum, _clip(speaker, text, rng)) for _, text in clips]

    def score(run: Run) -> float:
        found = [_scores(run, heads, one) for one in spectra]
        truth = [[at == head for head in range(len(WORDS))] for at, _ in clips]
        return float(
            np.mean(
                [auc(*(np.asarray(side)[:, head] for side in (found, truth))) for head in range(len(WORDS))]
            )
        )

    feeds = [{"input_1": one} for one in windows[:: max(1, len(windows) // CALIBRATION)][:CALIBRATION]]
    return Made(folder / "embedding_model.onnx", feeds, score, feeds[0])


def _session(file: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])


def _clip(speaker: Speaker, text: str, rng: np.random.Generator) -> Array:
    """A clip of 2.5 seconds with the text near its end, noisy."""
    spoken = speaker.say(text, rng)[: 2 * RATE] * rng.uniform(0.3, 1.0)
    clip = np.zeros(5 * RATE // 2, np.float32)
    start = clip.size - spoken.size - RATE // 8
    clip[start : start + spoken.size] = spoken
    return with_noise(clip, rng)


def _windows(spectrum: onnxruntime.InferenceSession, sound: Array) -> list[Array]:
    """Windows of the spectrum as the embedding takes them, `(1, 76, 32, 1)`."""
    sample = {spectrum.get_inputs()[0].name: np.round(sound * 32767)[None].astype(np.float32)}
    mel = spectrum.run(None, sample)[0].reshape(-1, 32) / 10 + 2
    starts = range(0, len(mel) - WINDOW + 1, STEP)
    return [np.ascontiguousarray(mel[at : at + WINDOW][None, :, :, None], np.float32) for at in starts]


def _scores(run: Run, heads: Sequence[onnxruntime.InferenceSession], windows: Sequence[Array]) -> list[float]:
    """The most that each head gives to any stretch of the clip."""
    embedded = np.stack([run({"input_1": one})[0].reshape(96) for one in windows])
    stretches = [embedded[None, at : at + HEARD] for at in range(len(embedded) - HEARD + 1)]
    return [
        max(float(head.run(None, {head.get_inputs()[0].name: one})[0].ravel()[0]) for one in stretches)
        for head in heads
    ]

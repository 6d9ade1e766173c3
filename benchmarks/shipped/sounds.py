"""Speech of espeak-ng's voices at 16 kHz, with noise and pauses. The library is that of a wheel; seeded."""

import ctypes
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.signal import resample_poly

from benchmarks.shipped.data import NoData

Array = NDArray[Any]
RATE: Final = 16_000
VOICES: Final = ("en", "en-us", "en-gb-scotland", "en-gb-x-rp", "en-us+f2", "en-us+m3", "en+f3", "en-us+f4")
SYNCHRONOUS: Final = 2
UTF8: Final = 1
SPEED: Final = 1
PITCH: Final = 3
Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


class Speaker:
    """espeak-ng, kept open: it has one voice at a time in a process."""

    def __init__(self, wheel: Path) -> None:
        """Load the library and the data of the wheel.

        Raises:
          NoData: the library does not start.
        """
        folder = wheel / "espeakng_loader"
        self._library = ctypes.CDLL(str(folder / "libespeak-ng.so"))
        data = str(folder / "espeak-ng-data").encode()
        self._rate = self._library.espeak_Initialize(SYNCHRONOUS, 0, data, 0)
        if self._rate <= 0:
            raise NoData("espeak-ng did not start with the data of its wheel")
        self._heard: list[Array] = []
        self._callback = Callback(self._take)
        self._library.espeak_SetSynthCallback(self._callback)

    def _take(self, wave: Any, count: int, _events: object) -> int:
        if wave and count > 0:
            self._heard.append(np.ctypeslib.as_array(wave, shape=(count,)).copy())
        return 0

    def say(self, text: str, rng: np.random.Generator) -> Array:
        """Return a text spoken by one of the voices, float32 in [-1, 1] at 16 kHz."""
        self._library.espeak_SetVoiceByName(VOICES[rng.integers(len(VOICES))].encode())
        self._library.espeak_SetParameter(SPEED, int(rng.integers(130, 190)), 0)
        self._library.espeak_SetParameter(PITCH, int(rng.integers(30, 70)), 0)
        self._heard.clear()
        encoded = text.encode()
        self._library.espeak_Synth(encoded, len(encoded) + 1, 0, 1, 0, UTF8, None, None)
        self._library.espeak_Synchronize()
        wave = np.concatenate(self._heard).astype(np.float32) / 32768
        return np.asarray(resample_poly(wave, RATE, self._rate), np.float32)


def with_noise(sound: Array, rng: np.random.Generator, level: tuple[float, float] = (0.002, 0.03)) -> Array:
    """Return the sound with white and low noise of a random level, float32 in [-1, 1]."""
    white = rng.normal(0, 1, sound.size)
    low = np.cumsum(rng.normal(0, 1, sound.size))
    low = low - np.convolve(low, np.ones(401) / 401, "same")
    noise = white + low / max(float(low.std()), 1e-9)
    return np.clip(sound + rng.uniform(*level) * noise, -1, 1).astype(np.float32)

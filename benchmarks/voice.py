"""The voice-activity model on a minute of generated speech: dB in eight bits, and with sixteen in front.

`python -m benchmarks.voice`; needs the model folder. Sound and states are those of tests/test_voice.py.
"""

import planner
from tests.test_voice import FILE, FRONT, chunks, speech


def main() -> None:
    """Print a line per way of planning."""
    model = planner.load_model(FILE)
    model = planner.annotate(model, stats=planner.calibrate(model, chunks(speech(10, 1))))
    heard = chunks(speech(60, 2))
    ways = {"eight bits": model, "16 in front": planner.annotate(model, annotations=FRONT)}
    for said, annotated in ways.items():
        for target in ("onnxruntime-cpu", "litert-int8"):
            plan = planner.plan(annotated, target)
            quality = planner.compare(annotated, planner.export(annotated, plan, "onnx-qdq"), heard)
            told = ", ".join(f"{name} {output.sqnr:.1f} dB" for name, output in quality.outputs.items())
            print(f"{said:12} {target:16} {told}")


if __name__ == "__main__":
    main()

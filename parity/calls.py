"""The calls that a .tflite is calibrated and judged on, for each of its signatures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tpu_export.converters.litert.quantize import calibration_data
from tpu_export.converters.litert.quantize.errors import CalibrationError
from tpu_export.converters.litert.sizes import family
from tpu_export.exporter.capture import Captured
from tpu_export.exporter.second_inputs import resized
from tpu_export.parity.eager import Array, Sample
from tpu_export.parity.job import Job
from tpu_export.parity.judging import real_samples
from tpu_export.parity.relaid import as_the_file
from tpu_export.parity.rungs import flat_inputs
from tpu_export.parity.samples import Samples


def calls_of(job: Job) -> tuple[dict[str, list[Sample]], str]:
    """Return the calls of each signature, and where they come from.

    Of calls for a dynamic model, a signature takes those of its sizes. Where there are none,
    all are repeated or cut to its sizes, which is said.

    Raises:
        CalibrationError: they cannot be read, do not fit, or a signature has none.
    """
    if job.litert.calibrate is None:
        draw = Samples(job.seed, job.second_inputs)
        calls = {name: draw.of(c) for name, c in job.signatures.items()}
        return calls, "the example and seeded inputs"
    models = {name: _model(job, name) for name in job.signatures}
    given = _given(job, models)
    found, made = {}, []
    for name, captured in job.signatures.items():
        taken = [as_the_file(captured, call) for call in given[models[name]]]
        own = real_samples(captured, taken)
        found[name] = [s for s in own if _of_size(captured, s)]
        if not found[name]:
            found[name] = [_to_size(captured, sample) for sample in own]
            made.append(name)
    words = f"{sum(len(given[m]) for m in set(models.values()))} calls of --calibrate"
    if made:
        words += f", repeated or cut to size for {', '.join(made)}"
    return found, words


def _model(job: Job, name: str) -> str:
    """Return the model's name of a signature, or that of the file where calls have it."""
    given = job.litert.calibrate
    if isinstance(given, Mapping) and name in given:
        return name
    if job.litert.dynamic_dims == "example":
        return name
    return family(name, job.signatures[name].example_dims())


def _given(
    job: Job, models: Mapping[str, str]
) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    given = job.litert.calibrate
    assert given is not None
    if isinstance(given, str):
        return _read(given, job, models)
    names = set(models.values())
    by_name = given if isinstance(given, Mapping) else dict.fromkeys(names, given)
    lacking = sorted(name for name in names if not by_name.get(name))
    if lacking or (len(names) > 1 and not isinstance(given, Mapping)):
        raise CalibrationError(
            f"no calls are given for {', '.join(lacking or sorted(names))}",
            hint="give a list of calls for each signature: {name: [{input: array}]}",
        )
    return by_name


def _read(
    text: str, job: Job, models: Mapping[str, str]
) -> dict[str, list[dict[str, Array]]]:
    signatures = {
        models[n]: c.borders.of_torch(c.signature) for n, c in job.signatures.items()
    }
    fixed = job.litert.dynamic_dims == "example"
    sizes = {
        models[n]: c.example_dims() if fixed else {} for n, c in job.signatures.items()
    }
    return calibration_data(text, signatures, sizes)


def _of_size(captured: Captured, sample: Sample) -> bool:
    shapes = [tuple(t.shape) for t in captured.example_inputs()]
    arrays = flat_inputs(captured.signature, sample).values()
    return [array.shape for array in arrays] == shapes


def _to_size(captured: Captured, sample: Sample) -> Sample:
    example = sample.args, dict(sample.kwargs)
    return Sample(sample.origin, *resized(captured, example, captured.example_dims()))

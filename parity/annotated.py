"""A .tflite with what is known of it inside: a JSON document, and golden arrays."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tpu_export.converters.litert import LiteRtModel
from tpu_export.converters.litert.document import packed
from tpu_export.converters.litert.engines import ENGINES, Calls, run_calls
from tpu_export.converters.litert.errors import LiteRtMismatchError
from tpu_export.converters.litert.graph import read_graph
from tpu_export.converters.litert.metadata import add_metadata
from tpu_export.converters.litert.trial import close
from tpu_export.parity.eager import Array
from tpu_export.parity.halves import limits_arrays
from tpu_export.parity.job import Job
from tpu_export.parity.judging import as_taken, state_of
from tpu_export.parity.litert_document import Known, document, is_random
from tpu_export.parity.rungs import flat_inputs, with_state

_AUTO_BYTES, _AUTO_SHARE = 64 * 1024, 100


def annotated(job: Job, model: LiteRtModel, known: Known) -> LiteRtModel:
    """Return the file with metadata; both engines have run it.

    Raises:
        AnnotationError: labels or licence cannot be read, or do not fit.
        LiteRtMismatchError, LiteRtUnloadableError: an engine does not take it as before.
    """
    calls = _calls(model, known)
    found = run_calls(model.path, "interpreter", calls)
    golden = {
        call.signature: _golden(call, outputs[0], known)
        for call, outputs in zip(calls, found, strict=True)
        if known.references
    }
    kept = _kept(job, golden, model.path.stat().st_size, known.notes)
    entries = packed(document(job, known, sorted(kept)), kept)
    place = Path(tempfile.mkdtemp(prefix="tpu-export-litert-"))
    path = place / "model.tflite"
    try:
        add_metadata(model.path, path, entries)
        _check(path, calls, found)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    report = replace(model.report, size=path.stat().st_size)
    made = replace(model, path=path, report=report)
    weakref.finalize(made, shutil.rmtree, place, ignore_errors=True)
    return made


def _calls(model: LiteRtModel, known: Known) -> list[Calls]:
    """Return one call of each signature, in the dtypes that the file takes."""
    if not known.references:
        own = {c.signature: c.inputs[0] for c in known.trials}
    else:
        own = {
            r.signature.name: with_state(
                flat_inputs(r.signature, r.samples[0]),
                state_of(r.signature, known.state),
            )
            for r in known.references
        }
    graphs = {name: read_graph(model.path, name) for name in own}
    return [Calls(n, [as_taken(graphs[n], inputs)]) for n, inputs in own.items()]


def _golden(
    call: Calls, outputs: Mapping[str, Array], known: Known
) -> dict[str, Array]:
    """Return inputs and outputs: eager's, or the file's own where eager's are others."""
    name = call.signature
    reference = next(r for r in known.references if r.signature.name == name)
    wanted = dict(outputs)
    if known.quantization is None and not is_random(known.programs[name]):
        specs = reference.signature.outputs
        eager = zip(specs, reference.run.calls[0].outputs, strict=True)
        wanted = {spec.name: array for spec, array in eager}
    return {
        **{f"inputs/{n}": array for n, array in call.inputs[0].items()},
        **{f"outputs/{n}": array for n, array in wanted.items()},
        **limits_arrays(reference.limits, reference.signature),
    }


def _kept(
    job: Job,
    golden: Mapping[str, Mapping[str, Array]],
    size: int,
    notes: list[str],
) -> dict[str, Mapping[str, Array]]:
    """Return the golden arrays that the file may have by its size."""
    wanted = job.litert.annotations.golden
    if wanted == "none":
        return {}
    limit = max(_AUTO_BYTES, size // _AUTO_SHARE)
    kept = {}
    for name, arrays in golden.items():
        own = sum(a.nbytes for a in arrays.values())
        if wanted == "all" or own <= limit:
            kept[name] = arrays
        else:
            notes.append(
                f"{name}: golden inputs and outputs would take {own / 1e3:.0f} kB and are "
                "not in the file; --golden all keeps them"
            )
    return kept


def _check(
    path: Path, calls: Sequence[Calls], found: Sequence[Sequence[Mapping[str, Array]]]
) -> None:
    """Run the file in both engines, against what it gave without metadata."""
    for engine in ENGINES:
        again = run_calls(path, engine, calls)
        for call, before, after in zip(calls, found, again, strict=True):
            for name, value in before[0].items():
                if engine == "interpreter" and not close(after[0][name], value):
                    raise LiteRtMismatchError(
                        f"output {name!r} of {call.signature!r} is another one with the "
                        "metadata in the file",
                        hint="please report the model",
                    )

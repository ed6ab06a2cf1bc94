"""`--io-layout`: which inputs and outputs of a .tflite have their channels last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tpu_export.converters.stablehlo.layout.borders import Borders
from tpu_export.exporter.capture import Captured
from tpu_export.parity.job import Job
from tpu_export.parity.litert_options import IoLayout
from tpu_export.parity.relaid import relaid, relaid_second
from tpu_export.runtime.errors import TpuExportError

# How many dimensions a layout is for, and whether it has their channels last.
LAYOUTS = {
    "nchw": (4, False),
    "nhwc": (4, True),
    "ncdhw": (5, False),
    "ndhwc": (5, True),
    "ncl": (3, False),
    "nlc": (3, True),
}


class IoLayoutError(TpuExportError):
    """A layout that is not known, or is asked for what is no image."""

    code = "TPX-0630"


def laid_out_job(job: Job) -> Job:
    """Return a job whose signatures are laid out as its file.

    Raises:
        IoLayoutError: a name is none of an input or output, or of one with other dimensions.
    """
    layout = _by_name(job.litert.io_layout)
    _check_layouts(layout)
    _check_names(layout, job.signatures)
    if not any(LAYOUTS[own][1] for own in layout.values()):
        return job
    found = {n: relaid(c, _borders(layout, c)) for n, c in job.signatures.items()}
    notes = [_said(name, c) for name, c in found.items()]
    return replace(
        job,
        signatures=found,
        second_inputs=relaid_second(job.second_inputs, job.signatures),
        notes=(*job.notes, *notes),
    )


def _check_layouts(given: Mapping[str, str]) -> None:
    for name, layout in given.items():
        if layout not in LAYOUTS:
            what = "" if name == "*" else f" of {name!r}"
            raise IoLayoutError(
                f"no layout {layout!r}{what}", hint=f"there are {', '.join(LAYOUTS)}"
            )


def _check_names(layout: Mapping[str, str], captures: Mapping[str, Captured]) -> None:
    """Refuse names of what has other dimensions, all at once."""
    ranks = {
        spec.name: len(spec.shape)
        for c in captures.values()
        for spec in (*c.signature.inputs, *c.signature.outputs)
    }
    problems = [
        f"no input or output {name!r}"
        if name not in ranks
        else f"{name!r} has {ranks[name]} dimensions, {own} has {LAYOUTS[own][0]}"
        for name, own in layout.items()
        if name != "*" and ranks.get(name) != LAYOUTS[own][0]
    ]
    if problems:
        found = ", ".join(f"{name}: {rank}" for name, rank in ranks.items())
        raise IoLayoutError("; ".join(problems), hint=f"dimensions: {found}")


def _by_name(given: IoLayout) -> Mapping[str, str]:
    return {"*": given} if isinstance(given, str) else given


def _borders(layout: Mapping[str, str], captured: Captured) -> Borders:
    def chosen(specs: object) -> frozenset[str]:
        assert isinstance(specs, tuple)
        own = {s: layout.get(s.name, layout.get("*", "nchw")) for s in specs}
        return frozenset(
            s.name for s, name in own.items() if LAYOUTS[name] == (len(s.shape), True)
        )

    signature = captured.signature
    return Borders(chosen(signature.inputs), chosen(signature.outputs))


def _said(name: str, captured: Captured) -> str:
    sides = captured.borders.inputs, captured.borders.outputs
    names = [n for side in sides for n in sorted(side)]
    return f"channels last in {name}: {', '.join(names) or 'none'}"

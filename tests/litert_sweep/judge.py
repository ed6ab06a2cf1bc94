"""Export a case, run it in both engines on two inputs, and compare with torch eager."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch.utils import _pytree as pytree

from litert_sweep.case import Case
from tpu_export.converters.litert import build
from tpu_export.converters.litert.engines import ENGINES, Calls
from tpu_export.converters.stablehlo.arrays import as_numpy
from tpu_export.exporter.capture import Captured, capture
from tpu_export.exporter.stages import lower
from tpu_export.parity.rungs import flat_inputs
from tpu_export.parity.samples import Samples
from tpu_export.runtime.errors import TpuExportError

# Refusals: no graph, no rule, no form, no kernel; NaN that kernels lose. Any other error means
# that what was handed to the converter does not run there, or computes something else.
_BEFORE = {"TPX-0102", "TPX-0201", "TPX-0202", "TPX-0203", "TPX-0290", "TPX-0601"}
REFUSALS = _BEFORE | {"TPX-0608"}


@dataclass(frozen=True)
class Outcome:
    """What became of a case.

    Attributes:
        verdict: "broken" stands for an error after the scan: nothing was written then.
        code: of the error.
        detail: its words, or where the results differ.
        ops: LiteRT's, with counts.
    """

    verdict: Literal["right", "refused", "broken", "wrong"]
    code: str | None = None
    detail: str = ""
    ops: Mapping[str, int] | None = None


def judge(case: Case) -> Outcome:
    """Return what becomes of a case."""
    return attempt(lambda: _outcome(*case.make()))


def attempt(outcome: Callable[[], Outcome]) -> Outcome:
    """Return what an export gives, or the error that it ends in."""
    try:
        return outcome()
    except TpuExportError as error:
        verdict = "refused" if error.code in REFUSALS else "broken"
        return Outcome(verdict, error.code, str(error))


def _outcome(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> Outcome:
    captured = capture(module, inputs, {})
    program = lower(captured, target="litert").program
    samples = Samples().of(captured)
    calls = Calls("forward", [flat_inputs(captured.signature, s) for s in samples])
    candidate = build({"forward": program}, inputs={"forward": calls.inputs[-1]})
    found = {engine: candidate.run(engine, [calls])[0] for engine in ENGINES}
    wanted = [_eager(module, sample.args) for sample in samples]
    ops = candidate.model.report.ops["forward"]
    for engine, answers in found.items():
        detail = _difference(captured, answers, wanted)
        if detail:
            return Outcome("wrong", None, f"{engine}: {detail}", ops)
    return Outcome("right", ops=ops)


def _eager(module: torch.nn.Module, args: Sequence[Any]) -> list[Any]:
    with torch.no_grad():
        results = pytree.tree_leaves(module(*pytree.tree_map(torch.clone, args)))
    return [as_numpy(torch.as_tensor(x)) for x in results]


def _difference(
    captured: Captured,
    answers: Sequence[Mapping[str, Any]],
    wanted: Sequence[Sequence[Any]],
) -> str:
    """Return where results differ: integers in any bit, floats beyond rounding."""
    for number, (answer, results) in enumerate(zip(answers, wanted, strict=True)):
        for spec, want in zip(captured.signature.outputs, results, strict=True):
            got, place = answer[spec.name], f"{spec.name} of input {number}"
            if (got.dtype, got.shape) != (want.dtype, want.shape):
                return f"{place}: {got.dtype}{got.shape}, not {want.dtype}{want.shape}"
            exact = want.dtype.kind != "f"
            settings = {"rtol": 0 if exact else 1e-4, "atol": 0 if exact else 2e-5}
            if not np.allclose(got, want, equal_nan=not exact, **settings):
                return f"{place} differs"
    return ""

"""The bank of model patterns through LiteRT: PYTHONPATH=tests python -m litert_sweep.bank.

Each case runs in both engines on its example, its other inputs of the same sizes (a .tflite
is for one set of sizes) and a seeded set, with its state handed on, and is compared with a
fresh eager model.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import torch
from test_cases import EXPORTABLE, calls, case, close
from torch.utils import _pytree as pytree

from litert_sweep.judge import Outcome, attempt
from tpu_export.converters.litert import build
from tpu_export.converters.litert.engines import ENGINES, Calls
from tpu_export.exporter.capture import Captured, capture
from tpu_export.exporter.stages import lower
from tpu_export.parity.eager import Sample, flatten_like
from tpu_export.parity.judging import initial_state
from tpu_export.parity.rungs import flat_inputs, with_state
from tpu_export.parity.samples import Samples


def judge_case(name: str) -> Outcome:
    """Return what becomes of a case of the bank."""
    return attempt(lambda: _outcome(case(name)))


def _outcome(bank: ModuleType) -> Outcome:
    model, args, kwargs = bank.make()
    shapes = getattr(bank, "DYNAMIC", None)
    captured = capture(model, args, kwargs, dynamic_shapes=shapes)
    program = lower(captured, target="litert").program
    samples = samples_of(bank, captured)
    flat = [flat_inputs(captured.signature, s) for s in samples]
    state = initial_state([program])
    sequence = Calls(
        captured.name,
        [with_state(flat[0], state), *flat[1:]],
        carried=[f"state.{name}" for name in state],
    )
    sizes = {captured.name: captured.example_dims()}
    candidate = build(
        {captured.name: program}, dims=sizes, inputs={captured.name: flat[-1]}
    )
    found = {engine: candidate.run(engine, [sequence])[0] for engine in ENGINES}
    ops = candidate.model.report.ops[captured.name]
    for engine, answers in found.items():
        detail = _difference(bank, captured, samples, answers)
        if detail:
            return Outcome("wrong", None, f"{engine}: {detail}", ops)
    return Outcome("right", ops=ops)


def samples_of(bank: ModuleType, captured: Captured) -> list[Sample]:
    given = [Sample(f"call {i}", *pair) for i, pair in enumerate(calls(bank))]
    fitting = [s for s in given if _shapes(s) == _shapes(given[0])]
    seeded = Samples().of(captured)[1]
    return [*fitting, *([seeded] if _runs(bank.make()[0], seeded) else [])]


def _runs(model: Any, sample: Sample) -> bool:
    """Whether torch takes drawn values: offsets must rise, for one."""
    own = sample.clone()
    try:
        with torch.no_grad():
            model(*own.args, **dict(own.kwargs))
    except (RuntimeError, IndexError):
        return False
    return True


def _shapes(sample: Sample) -> list[Any]:
    leaves = pytree.tree_leaves((sample.args, sample.kwargs))
    return [getattr(x, "shape", x) for x in leaves]


def _difference(
    bank: ModuleType,
    captured: Captured,
    samples: Sequence[Sample],
    answers: Sequence[Mapping[str, Any]],
) -> str:
    """Return where a call's results, or the inputs after it, are not eager's."""
    eager, signature = bank.make()[0], captured.signature
    for sample, answer in zip(samples, answers, strict=True):
        own = sample.clone()
        with torch.no_grad():
            wanted = flatten_like(
                signature.output_tree, eager(*own.args, **dict(own.kwargs))
            )
        pairs = [(o.name, w) for o, w in zip(signature.outputs, wanted, strict=True)]
        after = flat_inputs(signature, own)
        pairs += [
            (f"input.{name}", torch.from_numpy(after[name]))
            for name in signature.mutated_inputs
        ]
        for name, want in pairs:
            try:
                close(answer[name], want, getattr(bank, "TOL", {}))
            except AssertionError as error:
                words = " ".join(str(error).split())
                return f"{name} of {sample.origin}: {words}"
    return ""


def main(names: list[str], judge: Callable[[str], Outcome] = judge_case) -> int:
    """Print a line a case, and the totals; 1 where one is wrong or broken."""
    warnings.simplefilter("ignore")
    totals = Counter[str]()
    for name in names or EXPORTABLE:
        start = time.perf_counter()
        found = judge(name)
        seconds = time.perf_counter() - start
        totals[found.verdict] += 1
        words = f"{found.code or ''} {found.detail[:500]}"
        print(f"{found.verdict:8} {name} {seconds:.1f} s {words}", flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in totals.items()))
    return min(totals["wrong"] + totals["broken"], 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Why torch.export refused a model, in terms of the user's code."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Mapping
from itertools import takewhile
from pathlib import Path
from types import FrameType

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from tpu_export.exporter.eager_failure import eager_failure
from tpu_export.exporter.transforms import TRANSFORM
from tpu_export.runtime.errors import TpuExportError


class NotExportableError(TpuExportError):
    """torch.export cannot capture the model as it is."""

    code = "TPX-0103"


class DimRangeError(TpuExportError):
    """The model holds only for a part of the sizes that were asked for."""

    code = "TPX-0104"


# Torch's words -> what to do about them; the first match wins.
SUGGESTIONS: tuple[tuple[str, str], ...] = (
    (
        r"Encountered input mutation during higher order",
        "a scan or map cannot write to what is around it: return the new value from its "
        "function, and write it after the op",
    ),
    (
        r"Encountered aliasing during higher order",
        "return x.clone() where the function of a loop returns what it was given",
    ),
    (
        r"combine_mode='pointwise'",
        'say combine_mode="generic": the artifact computes the same',
    ),
    (r"strides of the two|output stride", "end both branches with .contiguous()"),
    (
        r"Could not guard on data-dependent|bool\(\)|__bool__",
        "a branch depends on tensor values: use torch.where or torch.cond, or "
        "torch._check() what you know of the value",
    ),
    (
        r"data-dependent|unbacked|\.item\(\)|_local_scalar_dense|nonzero",
        "a size or index depends on tensor values (.item(), .tolist(), nonzero()): "
        "compute it outside of the model, or use a mask of fixed size",
    ),
    (
        r"known type|pytree|Unsupported input type",
        "use tensors, numbers, lists, tuples, dicts and dataclasses, or register the "
        "class with torch.utils._pytree.register_pytree_node",
    ),
    (
        r"numpy\(\)|numpy is not|from_numpy",
        "numpy runs outside of the graph: use torch functions in forward()",
    ),
    (r"[Cc]omplex", "compute with real and imaginary parts (torch.view_as_real)"),
    (
        r"failed to unpack the object.*FakeTensor",
        "packed sequences do not export: run the recurrence on the padded batch and "
        "mask its results",
    ),
    (
        r"provide a tree_name|`dynamic_shapes`",
        "dynamic_shapes has the structure of the inputs, with {axis: Dim} or None for "
        "each tensor; **kwargs of forward() cannot have any",
    ),
    (
        r"derived min value|inconsistent min",
        "give the Dim min= and max= for which every size that is derived from it is positive",
    ),
    (
        rf"vmap|{TRANSFORM.pattern}",
        "torch.export cannot follow this use of torch.func or torch.autograd inside "
        "forward(): write the derivative out with torch's ops, or take it outside of the model",
    ),
)
OF_EAGER = "it fails in torch eager too: correct the model, or its example inputs"
SCRIPT = "use the nn.Module itself, not its TorchScript form (torch.jit)"
CUMULATIVE = (
    "momentum=None averages by a count of the calls, which no graph holds as a number: give "
    "the BatchNorm a momentum, or export the model in eval()"
)
DYNAMIC_RNN = (
    "torch unrolls nn.RNN over a fixed number of steps: leave the time axis static and pad, "
    "use nn.GRU or nn.LSTM, or export one signature for each length"
)
EDGE_EXAMPLE = (
    "torch may take a size of 0 or 1 in the example for a constant: give an example with 2 or "
    "more there; if the axis is fixed for another reason, the error then says so"
)
PLAIN_NUMBER = (
    "the model makes a plain number of the size (float(), int(), math.sqrt(), the steps of "
    "linspace, a tree of steps as in associative_scan): compute with x.shape[i] itself, as in "
    "x * x.shape[i] ** -0.5, or make the axis static"
)
UNPROVEN = (
    "give the Dim a range or a multiple (2 * Dim) for which that holds, or say Dim.AUTO: "
    "then what torch cannot prove is checked at each call"
)
TENSOR_PLACE = (
    "a tensor with one element stands where Python needs a number: write with "
    "k.index_copy_(0, i.reshape(1), x[None]) instead of k[i] = x"
)
DEFAULT = (
    "see torch's documentation of torch.export; strict=True sometimes captures what "
    "the default mode cannot"
)
_NOISE = re.compile(
    r"For more information|For extended logs|For more debugging|If you suspect"
    r"|This higher order operator doesn't work"
    r"|For C\+\+|Caused by|\(unhinted:.*|The error above occurred"
)
_TORCHS_OWN = frozenset({"UserError", "GuardOnDataDependentSymNode", "Unsupported"})
_WRITE = re.compile(r"\w\[[^:]+\]\s*[-+*/]?=[^=]")
_CONSTANT = re.compile(r"specialized (?:it to be a constant \(|value of )(\d+)")
_UNMET = re.compile(
    r"Not all values of (\w+) = (axis \d+ of .+?) in the specified range (.+) satisfy the "
    r"generated guard (.+)"
)


def explain(
    error: Exception,
    model: torch.nn.Module,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> TpuExportError:
    """Return the typed error for what torch.export raised on example inputs."""
    if "Constraints violated" in str(error):
        return _dim_range(str(error), model)
    of_torch = type(error).__name__ in _TORCHS_OWN
    if not of_torch and (own := eager_failure(model, args, kwargs)):
        return NotExportableError(
            f"the model itself fails{_told(own, model)}",
            hint=suggest(str(own), OF_EAGER),
        )
    hint = suggest(str(error))
    if "specialized integer" in str(error) and _WRITE.search(_line(error)):
        hint = TENSOR_PLACE
    part = _innermost(error)
    if isinstance(part, _BatchNorm) and part.momentum is None and part.training:
        hint = CUMULATIVE
    said = f"torch.export refuses the model{_told(error, model)}"
    return NotExportableError(said, hint=hint)


def _told(error: Exception, model: torch.nn.Module) -> str:
    """Return " at place: reason"."""
    reason = shorten(str(error))
    line = where(error)
    place = ", ".join(filter(None, (line and f"at {line}", inside(error, model))))
    at = f" {place}" if place else ""
    kind = type(error).__name__
    plain = kind in {"RuntimeError", *_TORCHS_OWN}
    return f"{at}: {reason if plain else f'{kind}: {reason}'}"


def _line(error: BaseException) -> str:
    frame = _frame(error)
    return (frame.line or "") if frame is not None else ""


def shorten(text: str) -> str:
    """Return the first line of torch's message that says something, with a list after it."""
    lines = [_NOISE.split(line)[0].strip().rstrip(".") for line in text.splitlines()]
    for i, line in enumerate(lines):
        listed = takewhile(lambda entry: entry.startswith("* "), lines[i + 1 :])
        forms = " or ".join(entry[2:] for entry in listed)
        if line:
            return f"{line} {forms}" if forms else line
    return "no reason given"


def suggest(text: str, default: str = DEFAULT) -> str:
    """Return what to do about torch's message."""
    for pattern, suggestion in SUGGESTIONS:
        if re.search(pattern, text):
            return suggestion
    return default


def _dim_range(text: str, model: torch.nn.Module) -> DimRangeError:
    found = [
        line.strip()[2:] for line in text.splitlines() if line.strip().startswith("- ")
    ]
    said = "; ".join(_once(map(_in_words, found))) or shorten(text)
    fixes = text.partition("Suggested fixes:")[2].strip().splitlines()
    # "n = 4*_n" belongs to "_n = Dim('_n', …)"; a number alone says that the axis is fixed.
    advice = [line.strip() for line in fixes if "=" in line] if "Dim(" in text else []
    hint = UNPROVEN
    if any(int(size) < 2 for size in _CONSTANT.findall(text)):
        hint = EDGE_EXAMPLE
    elif "specialized" in text and any(
        isinstance(module, torch.nn.RNN) for module in model.modules()
    ):
        hint = DYNAMIC_RNN
    elif advice:
        hint = "torch suggests: " + "; ".join(advice)
    elif "specialized" in text:
        hint = PLAIN_NUMBER
    return DimRangeError(f"the dynamic shapes do not hold: {said}", hint=hint)


def _once(sentences: Iterable[str]) -> list[str]:
    """Join the conditions of each dimension, for which torch has a sentence each."""
    groups: dict[str, list[str]] = {}
    for sentence in sentences:
        match = _UNMET.fullmatch(sentence)
        if match is None:
            groups[sentence] = []
            continue
        name, axis, span, guard = match.groups()
        who = f"not all of {name} = {axis} ({span}) satisfy "
        groups.setdefault(who, []).append(guard.replace(axis, name))
    return [who + ", ".join(guards) for who, guards in groups.items()]


def _in_words(line: str) -> str:
    short = re.sub(r"L\['([^']+)'\]\.size\(\)\[(\d+)\]", r"axis \2 of \1", line)
    short = re.sub(r"L\['([^']+)'\]", r"\1", short)
    return re.split(r"\. If you|\. \(", short)[0].strip().rstrip(".")


def where(error: BaseException) -> str:
    """Return "file.py:line" of the innermost frame of the user's code."""
    frame = _frame(error)
    if frame is not None:
        return f"{Path(frame.filename).name}:{frame.lineno}"
    quoted = re.findall(r'File "([^"]+)", line (\d+)', str(error))
    outside = [(f, n) for f, n in quoted if not _is_machinery(f)]
    return f"{Path(outside[-1][0]).name}:{outside[-1][1]}" if outside else ""


def _frame(error: BaseException) -> traceback.FrameSummary | None:
    """Return the innermost frame of the user's code."""
    frames = traceback.extract_tb(error.__traceback__)
    user = [f for f in frames if not _is_machinery(f.filename)]
    return next((f for f in reversed(user) if not _is_ours(f.filename)), None)


def _is_ours(filename: str) -> bool:
    root = Path(__file__).resolve().parents[1]
    inside = (root / "exporter", root / "converters")
    return any(Path(filename).resolve().is_relative_to(folder) for folder in inside)


def _is_machinery(filename: str) -> bool:
    roots = (Path(torch.__file__).parent, Path(traceback.__file__).parent)
    if filename.startswith("<"):
        return True
    path = Path(filename)
    if path.is_relative_to(roots[0]):
        return True
    return path.is_relative_to(roots[1]) and "site-packages" not in path.parts


def inside(error: BaseException, model: torch.nn.Module) -> str:
    """Return "in module path (Class)" of the innermost submodule that was running."""
    names = {id(module): name for name, module in model.named_modules()}
    part = _innermost(error, names)
    return f"in {names[id(part)]} ({type(part).__name__})" if part else ""


def _innermost(
    error: BaseException, names: Mapping[int, str] | None = None
) -> torch.nn.Module | None:
    """Return the innermost module that was running, of those with a name if names are given."""
    found = None
    step = error.__traceback__
    while step is not None:
        module = _running(step.tb_frame)
        if module is not None and (names is None or names.get(id(module))):
            found = module
        step = step.tb_next
    return found


def _running(frame: FrameType) -> torch.nn.Module | None:
    this = frame.f_locals.get("self")
    return this if isinstance(this, torch.nn.Module) else None

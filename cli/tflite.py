"""Run and show a .tflite of any maker; more where tpu-export wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import click

from tpu_export.cli.failures import UsageError
from tpu_export.cli.inputs import read_inputs

if TYPE_CHECKING:
    from tpu_export.converters.litert.contents import Contents, SignatureContents
    from tpu_export.runtime.signature import Signature

TOP = 5  # labels that are shown


def is_tflite(path: str) -> bool:
    """Tell a .tflite by its first bytes, or by its name."""
    try:
        with Path(path).open("rb") as file:
            return file.read(8)[4:] == b"TFL3" or path.endswith(".tflite")
    except OSError:
        return path.endswith(".tflite")


def run(
    path: Path,
    source: str,
    name: str | None,
    engine: Literal["interpreter", "compiled"],
) -> tuple[str, dict[str, Any], list[str]]:
    """Return the signature that ran, its outputs by name, and lines on the labels.

    Raises:
        UsageError: the inputs do not fit a signature.
        LiteRtFileError, LiteRtUnloadableError: the file is none, or an engine refuses it.
    """
    from tpu_export.converters.litert.contents import read_contents
    from tpu_export.converters.litert.document import read_document
    from tpu_export.converters.litert.engines import Calls, run_calls

    contents = read_contents(path)
    found = read_document(path, contents.metadata) or {}
    own = _candidates(contents, name)
    first = next(iter(own.values()))
    arrays = read_inputs(source, cast("Signature", first))
    chosen = _chosen(own, arrays, found)
    _check_sizes(path, found, chosen, arrays)
    filled = {**_state(found, chosen), **arrays}
    ((outputs,),) = run_calls(path, engine, [Calls(chosen, [filled])])
    return chosen, outputs, _label_lines(found, chosen, outputs)


def _candidates(contents: Contents, name: str | None) -> dict[str, SignatureContents]:
    named = {n: s for n, s in contents.signatures.items() if n}
    if not named:
        raise UsageError(
            "the file has no signature, so its inputs have no names",
            hint="run it with LiteRT's own Interpreter",
        )
    if name is None:
        return named
    if name not in named:
        raise UsageError(
            f"no signature {name!r}", hint=f"signatures are {', '.join(named)}"
        )
    return {name: named[name]}


def _state(found: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return initial state that the metadata tells, as the inputs it is."""
    import numpy as np

    signature = found.get("signatures", {}).get(name, {})
    slots = {s["name"]: s for s in signature.get("torch", {}).get("state", ())}
    return {
        f"state.{slot}": np.full(slots[slot]["shape"], value, slots[slot]["dtype"])
        for slot, value in signature.get("state", {}).items()
        if slot in slots
    }


def _chosen(
    own: Mapping[str, SignatureContents],
    arrays: Mapping[str, Any],
    found: Mapping[str, Any],
) -> str:
    """Return the signature that the arrays fit.

    Raises:
        UsageError: they fit none; says what is wrong with the nearest.
    """
    problems = {n: _problems(s, arrays, _state(found, n)) for n, s in own.items()}
    fitting = [name for name, wrong in problems.items() if not wrong]
    if fitting:
        return "forward" if "forward" in fitting else fitting[0]
    nearest = min(problems, key=lambda name: len(problems[name]))
    wanted = "; ".join(
        f"{n} takes {', '.join(f'{x.name}: {x}' for x in s.inputs)}"
        for n, s in own.items()
    )
    raise UsageError(f"{nearest}: {'; '.join(problems[nearest])}", hint=wanted)


def _check_sizes(
    path: Path, found: Mapping[str, Any], name: str, arrays: Mapping[str, Any]
) -> None:
    """Refuse what the model does not hold for, where the file says what that is."""
    from tpu_export.converters.litert.document import damaged
    from tpu_export.converters.litert.sizes import unfit
    from tpu_export.runtime.codec import FieldError, decode
    from tpu_export.runtime.inputs import describe
    from tpu_export.runtime.signature import Signature

    own = found.get("signatures", {}).get(name)
    if own is None:
        return
    try:
        signature = decode(Signature, own["torch"])
    except FieldError as error:
        raise damaged(path) from error
    wrong = unfit(signature, arrays)
    if wrong:
        raise UsageError(f"{name}: {'; '.join(wrong)}", hint=describe(signature))


def _problems(
    signature: SignatureContents, arrays: Mapping[str, Any], state: Mapping[str, Any]
) -> list[str]:
    slots = {slot.name: slot for slot in signature.inputs}
    wrong = [f"unknown input {name}" for name in arrays if name not in slots]
    wrong += [f"missing input {n}" for n in slots if n not in arrays and n not in state]
    for name, array in arrays.items():
        slot = slots.get(name)
        if slot is None:
            continue
        same = len(slot.shape) == array.ndim and all(
            want in (-1, got) for want, got in zip(slot.shape, array.shape, strict=True)
        )
        if not same or array.dtype.name != slot.dtype:
            got = f"{array.dtype.name}{list(array.shape)}"
            wrong.append(f"{name} is {got}, expected {slot}")
    return wrong


def _label_lines(
    found: Mapping[str, Any], name: str, outputs: Mapping[str, Any]
) -> list[str]:
    """Return the likeliest labels of each labelled output's first row."""
    import numpy as np

    labels = found.get("labels", [])
    lines = []
    for output in found.get("labelled", {}).get(name, ()):
        row = np.asarray(outputs[output]).reshape(-1, len(labels))[0]
        best = np.argsort(-row.astype(np.float64), kind="stable")[:TOP]
        words = ", ".join(f"{labels[i]} {row[i]:.4g}" for i in best)
        lines.append(f"{output}: {words}")
    return lines


def replay(
    path: Path, engine: Literal["interpreter", "compiled"]
) -> tuple[list[list[str]], bool]:
    """Run the golden inputs; return a table against the golden outputs, and whether it passes.

    Raises:
        UsageError: the file has no golden arrays.
    """
    from tpu_export.converters.litert.contents import read_contents
    from tpu_export.converters.litert.document import golden, read_document
    from tpu_export.converters.litert.engines import Calls, run_calls
    from tpu_export.parity.metrics import difference, recorded_limits

    metadata = read_contents(path).metadata
    kept = golden(path, metadata)
    if not kept:
        raise UsageError(
            f"{path} has no golden inputs and outputs",
            hint="export with --golden all, or give --input",
        )
    whose = (read_document(path, metadata) or {}).get("golden", {})
    calls = [Calls(name, [_part(arrays, "inputs")]) for name, arrays in kept.items()]
    table = [["signature", "output", "against", "max abs", "max rel", "verdict"]]
    good = True
    for call, ((outputs,)) in zip(calls, run_calls(path, engine, calls), strict=True):
        for name, expected in _part(kept[call.signature], "outputs").items():
            limit = recorded_limits(kept[call.signature]).get(name)
            d = difference(outputs[name], expected, limit)
            good = good and d.passed
            row = [call.signature, name, whose.get(call.signature, "?")]
            verdict = "ok" if d.passed else "FAILED"
            table.append([*row, f"{d.max_abs:.2e}", f"{d.max_rel:.2e}", verdict])
    return table, good


def _part(arrays: Mapping[str, Any], side: str) -> dict[str, Any]:
    start = f"{side}/"
    return {n.removeprefix(start): a for n, a in arrays.items() if n.startswith(start)}


def show_run(path: Path, source: str, name: str | None, engine: Any) -> dict[str, Any]:
    """Run and say on standard error what ran; returns the outputs."""
    chosen, outputs, lines = run(path, source, name, engine)
    click.echo(f"{chosen} in LiteRT's {engine}", err=True)
    for line in lines:
        click.echo(line, err=True)
    return outputs

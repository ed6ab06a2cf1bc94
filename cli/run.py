"""tpu-export run ARTIFACT --input FILE --output FILE."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from errno import EINVAL
from pathlib import Path
from secrets import token_hex
from typing import IO, TYPE_CHECKING, Any

import click

from tpu_export.cli.failures import UsageError
from tpu_export.cli.inputs import read_inputs
from tpu_export.cli.json_values import json_text
from tpu_export.cli.output import print_table
from tpu_export.cli.tflite import is_tflite, replay, show_run
from tpu_export.cli.verbosity import verbose_option

if TYPE_CHECKING:
    from tpu_export.runtime.signature import Signature


@click.command("run")
@click.argument("artifact", type=click.Path())
@click.option("-i", "--input", "source", help="FILE.npz, .npy, .json or -.")
@click.option("-o", "--output", "target", default="-", help="FILE.npz, FILE.json or -.")
@click.option("--signature", help="By default the only one, or forward.")
@click.option(
    "--device", default="auto", show_default=True, help="auto, cpu, tpu, tpu:N."
)
@click.option(
    "--executables",
    type=click.Choice(["auto", "never", "require"]),
    default="auto",
    show_default=True,
)
@click.option(
    "--engine",
    type=click.Choice(["interpreter", "compiled"]),
    default="interpreter",
    show_default=True,
    help="Of a .tflite: LiteRT's Interpreter or its CompiledModel, on the CPU.",
)
@click.option(
    "--golden",
    is_flag=True,
    help="Of a .tflite: run its golden inputs instead, and compare with its golden outputs.",
)
@verbose_option
def command(
    artifact: str,
    source: str | None,
    target: str,
    signature: str | None,
    device: str,
    executables: Any,
    engine: Any,
    golden: bool,
) -> None:
    """Run a .tpuexe or a .tflite once. Inputs are arrays by name; nested names are dotted.

    In JSON, read or written, NaN and infinities are the strings "NaN", "Infinity" and
    "-Infinity".
    """
    check_target(target)
    if golden:
        _replay(artifact, engine, source)
        return
    if source is None:
        raise UsageError(
            "no inputs are given", hint="give --input FILE.npz, .npy, .json or -"
        )
    if is_tflite(artifact):
        _no_tpu(device)
        write_outputs(target, show_run(Path(artifact), source, signature, engine))
        return
    from tpu_export.runtime.program import load

    with load(artifact, device=device, executables=executables) as program:
        names = list(program.signatures)
        name = signature or (names[0] if len(names) == 1 else "forward")
        wanted = program[name].signature
        arguments = _arguments(wanted, read_inputs(source, wanted))
        outputs = named_outputs(wanted, program[name](**arguments))
        origin = f"{name} on {program.device}: {program.origin[name]}"
    click.echo(origin, err=True)
    write_outputs(target, outputs)


def _replay(artifact: str, engine: Any, source: str | None) -> None:
    if source is not None or not is_tflite(artifact):
        what = "--input has no use with" if source else f"{artifact} is no .tflite for"
        raise UsageError(
            f"{what} --golden",
            hint="`tpu-export parity FILE.tpuexe` compares a .tpuexe with its golden outputs",
        )
    table, good = replay(Path(artifact), engine)
    print_table(table)
    if not good:
        click.get_current_context().exit(1)


def _no_tpu(device: str) -> None:
    if device not in ("auto", "cpu"):
        raise UsageError(
            f"--device {device} cannot run a .tflite",
            hint="LiteRT runs on the CPU here: leave --device out",
        )


def _arguments(signature: Signature, arrays: dict[str, Any]) -> dict[str, Any]:
    """Put flat arrays into the structure of the parameters.

    Raises:
        InputError: a name is unknown or missing.
    """
    from tpu_export.runtime.inputs import InputError, describe
    from tpu_export.runtime.trees import unflatten

    names = [spec.name for spec in signature.inputs]
    unknown, missing = (
        sorted(set(arrays) - set(names)),
        [n for n in names if n not in arrays],
    )
    if unknown or missing:
        words = [f"unknown inputs {', '.join(unknown)}"] if unknown else []
        words += [f"missing inputs {', '.join(missing)}"] if missing else []
        raise InputError(
            f"{signature.name}: {'; '.join(words)}",
            hint=f"the signature is {describe(signature)}",
        )
    leaves = [arrays[name] for name in names]
    return {p.name: unflatten(p.tree, leaves) for p in signature.parameters}


def named_outputs(signature: Signature, result: Any) -> dict[str, Any]:
    """Return the result's arrays by output name."""
    from tpu_export.runtime.trees import flatten

    found: dict[int, Any] = {}
    flatten(
        signature.output_tree,
        result,
        "result",
        lambda index, _, leaf: found.__setitem__(index, leaf),
    )
    return {spec.name: found[i] for i, spec in enumerate(signature.outputs)}


def _plain(array: Any) -> Any:
    """Widen what .npz has no dtype for (bfloat16) to float32, exactly."""
    return array.astype("float32") if array.dtype.kind == "V" else array


def _json(outputs: dict[str, Any]) -> str:
    """Return arrays by name as JSON.

    Raises:
        UsageError: complex numbers have no form in JSON.
    """
    refused = [n for n, v in outputs.items() if v.dtype.kind == "c"]
    if refused:
        raise UsageError(
            f"JSON has no complex numbers, and {', '.join(refused)} holds some",
            hint="choose --output FILE.npz",
        )
    return json_text({n: v.tolist() for n, v in outputs.items()})


def check_target(target: str) -> None:
    """Refuse a file that cannot be written before the model runs.

    Raises:
        UsageError: it is no .npz, .json or -, or there is no such folder.
    """
    if target != "-" and Path(target).suffix not in (".npz", ".json"):
        raise UsageError(
            f"cannot write outputs to {target}: its ending is not .npz or .json",
            hint="choose --output FILE.npz, FILE.json or -",
        )
    if not Path(target).parent.is_dir():
        raise UsageError(
            f"cannot write {target}: no such folder", hint="choose another --output"
        )


def write_outputs(target: str, outputs: dict[str, Any]) -> None:
    """Write arrays by name to .npz, .json, or JSON on standard output."""
    if target == "-":
        click.echo(_json(outputs))
        return
    final = Path(target)
    try:
        with _replacing(final) as file:
            if target.endswith(".npz"):
                _write_npz(file, outputs)
            else:
                file.write(_json(outputs).encode())
    except OSError as error:
        raise UsageError(
            f"cannot write {target}: {error.strerror}", hint="choose another --output"
        ) from error


def _write_npz(file: Any, outputs: dict[str, Any]) -> None:
    import numpy as np

    np.savez(file, **{n: _plain(v) for n, v in outputs.items()})


@contextmanager
def _replacing(final: Path) -> Iterator[IO[bytes]]:
    """Give a file that gets its name when all is written, and else leaves nothing."""
    if final.exists() and not final.is_file():  # /dev/null must stay what it is
        raise OSError(EINVAL, "it is no regular file")
    partial = final.with_name(f".{final.name}.{token_hex(6)}.partial")
    try:
        with partial.open("wb") as file:
            yield file
        partial.replace(final)
    finally:
        partial.unlink(missing_ok=True)

"""tpu-export quantize-debug MODEL."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpu_export.cli.failures import UsageError, writable_folder
from tpu_export.cli.models import source
from tpu_export.cli.output import print_json
from tpu_export.cli.verbosity import verbose_option

if TYPE_CHECKING:
    from tpu_export.exporter.capture import Captured


@click.command("quantize-debug")
@click.argument("model")
@click.option(
    "--recipe",
    default="static-int8",
    show_default=True,
    help="As --quantize of an export takes it.",
)
@click.option(
    "--calibrate",
    metavar="DATA",
    help="Real inputs, as an export takes them: calls.npz, a folder of such files, or "
    "data.py:batches.  [default: the example and a seeded set]",
)
@click.option("--signature", help="Which one, of a model with several.")
@click.option(
    "--target-snr",
    type=float,
    help="Decibels that every output must have against float.",
)
@click.option(
    "--min-snr", type=float, help="Fail below these decibels against torch eager."
)
@click.option(
    "--max-slowdown",
    type=float,
    help="Fail above this multiple of the float file's time.",
)
@click.option(
    "-o", "--output", type=click.Path(), help="Where to write the mixed recipe (TOML)."
)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@verbose_option
def command(
    model: str,
    recipe: str,
    calibrate: str | None,
    signature: str | None,
    target_snr: float | None,
    min_snr: float | None,
    max_slowdown: float | None,
    output: str | None,
    seed: int,
    as_json: bool,
) -> None:
    """Find the layer of a model that a quantization for LiteRT hurts.

    Tells what each layer loses by itself from what it inherits; with --target-snr, leaves regions
    of the model in float until that is reached, and writes the mixed recipe.
    """
    if output and target_snr is None:
        raise UsageError("--output needs --target-snr", hint="add --target-snr 30")
    if output:
        writable_folder(str(Path(output).parent))
    from tpu_export.parity.models import captures
    from tpu_export.parity.quantize_debug import quantize_debug
    from tpu_export.parity.verdict import Gates

    origin = source(model)
    captured = _chosen(captures(origin, (), None, None), signature)
    report = quantize_debug(
        captured,
        recipe,
        data=_data(calibrate, captured),
        target=target_snr,
        gates=Gates(min_snr, max_slowdown),
        second=origin.second_inputs,
        seed=seed,
    )
    if output:
        _write(Path(output), report.recipe.to_toml())
    if as_json:
        print_json(report.to_json())
        return
    click.echo(report.text())
    if output:
        click.echo(f"\nwrote {output}")


def _data(text: str | None, captured: Captured) -> list[dict[str, Any]]:
    from tpu_export.converters.litert.quantize import calibration_data

    if text is None:
        return []
    name, dims = captured.name, captured.example_dims()
    return calibration_data(text, {name: captured.signature}, {name: dims})[name]


def _chosen(signatures: Mapping[str, Captured], name: str | None) -> Captured:
    if name is None and len(signatures) == 1:
        return next(iter(signatures.values()))
    if name is None or name not in signatures:
        raise UsageError(
            f"no signature {name!r}" if name else "the model has several signatures",
            hint=f"name one with --signature: {', '.join(signatures)}",
        )
    return signatures[name]


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror}", hint="choose another --output"
        ) from error

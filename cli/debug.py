"""tpu-export debug MODEL."""

from __future__ import annotations

from typing import Literal

import click

from tpu_export.cli.failures import writable_folder
from tpu_export.cli.models import source
from tpu_export.cli.output import print_json
from tpu_export.cli.tolerance import tolerance_option
from tpu_export.cli.verbosity import verbose_option


@click.command("debug")
@click.argument("model")
@tolerance_option
@click.option("--keep-going", is_flag=True, help="Past the first op that differs.")
@click.option(
    "--save",
    type=click.Path(),
    help="Folder for inputs, outputs and a reproducer of each op that differs.",
)
@click.option(
    "--target", type=click.Choice(["cloud-tpu", "litert"]), default="cloud-tpu"
)
@click.option(
    "--platform",
    type=click.Choice(["cpu", "tpu"]),
    default="cpu",
    help="tpu: with your Pallas kernels, in Pallas's interpreter on the CPU.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@verbose_option
@click.pass_context
def command(
    ctx: click.Context,
    model: str,
    tolerance: float | None,
    keep_going: bool,
    save: str | None,
    target: str,
    platform: Literal["cpu", "tpu"],
    as_json: bool,
) -> None:
    """Find the op of a model that is computed otherwise than in torch.

    Runs each op on the example inputs in torch and, on the same inputs of that op, through our
    rules compiled for the CPU; stops at the first that differs.
    """
    from tpu_export.parity.debug import debug

    report = debug(
        source(model),
        target="litert" if target == "litert" else "xla",
        platform=platform,
        tolerance=tolerance,
        keep_going=keep_going,
        save=writable_folder(save, "--save") if save else None,
    )
    if as_json:
        print_json(report.to_json())
    else:
        click.echo(report.text())
    ctx.exit(0 if report.passed else 1)

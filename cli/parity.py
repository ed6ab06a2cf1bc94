"""tpu-export parity MODEL|ARTIFACT."""

from __future__ import annotations

import click

from tpu_export.cli.models import source
from tpu_export.cli.output import print_json, print_table
from tpu_export.cli.tolerance import tolerance_option
from tpu_export.cli.verbosity import verbose_option


@click.command("parity")
@click.argument("model")
@click.option(
    "--artifact", type=click.Path(), help="The .tpuexe to check; else one is built."
)
@tolerance_option
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@verbose_option
@click.pass_context
def command(
    ctx: click.Context,
    model: str,
    artifact: str | None,
    tolerance: float | None,
    seed: int,
    as_json: bool,
) -> None:
    """Compare an artifact with torch eager, or with the outputs recorded in it.

    MODEL is what `export` takes; a .tpuexe alone is replayed against its recorded outputs.
    """
    from tpu_export.parity.check import parity

    subject = model if model.endswith(".tpuexe") else source(model)
    report = parity(subject, artifact=artifact, tolerance=tolerance, seed=seed)
    if as_json:
        print_json(report.to_json())
    else:
        print_table(report.table())
    ctx.exit(0 if report.passed else 1)

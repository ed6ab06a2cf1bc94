"""tpu-export zoo list | export."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from tpu_export.cli.failures import UsageError, writable_folder
from tpu_export.cli.models import source
from tpu_export.cli.output import ProgressLines, print_json, print_table
from tpu_export.cli.verbosity import verbose_option
from tpu_export.cli.zoo_page import Outcome, page

log = logging.getLogger(__name__)
SUFFIXES = {"cloud-tpu": ".tpuexe", "litert": ".tflite"}


@click.group("zoo")
def command() -> None:
    """List the model zoo, or export from it."""


@command.command("list")
@click.option("--json", "as_json", is_flag=True)
@verbose_option
def list_(as_json: bool) -> None:
    """List the models with their weights and licences."""
    from tpu_export.model_zoo.zoo import entry, names

    entries = [entry(name) for name in names()]
    if as_json:
        print_json(
            [
                {
                    "name": e.name,
                    "weights": e.weights,
                    "description": e.description,
                    "licence": e.licence,
                }
                for e in entries
            ]
        )
        return
    header = ["name", "weights", "description", "licence"]
    print_table(
        [header, *([e.name, e.weights, e.description, e.licence] for e in entries)]
    )


@command.command("export")
@click.argument("models", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every model of the zoo.")
@click.option(
    "-o", "--output", default="zoo-output", show_default=True, type=click.Path()
)
@click.option("--write-docs", type=click.Path(), help="Write the outcome as a page.")
@verbose_option
@click.pass_context
def export_(
    ctx: click.Context,
    models: tuple[str, ...],
    everything: bool,
    output: str,
    write_docs: str | None,
) -> None:
    """Export models for both targets; go on after a failure, and say so at the end.

    Models with recipes are quantized too, and measured on real inputs.
    """
    from tpu_export.model_zoo.zoo import entry, names

    wanted = list(names()) if everything else [entry(name).name for name in models]
    if not wanted:
        raise UsageError("no model named", hint="name some, or use --all")
    folder = writable_folder(output)
    if write_docs:
        writable_folder(str(Path(write_docs).parent))
    outcomes = [
        one(name, target, folder, recipe)
        for name in wanted
        for target, recipe in (
            *((target, "") for target in SUFFIXES),
            *(("litert", recipe) for recipe in entry(name).quantize),
        )
    ]
    if write_docs:
        Path(write_docs).write_text(page(outcomes))
    failed = [o for o in outcomes if o.error]
    for o in failed:
        click.echo(f"failed: {o.what}: {o.error}", err=True)
    click.echo(f"{len(outcomes) - len(failed)} of {len(outcomes)} exports succeeded")
    ctx.exit(1 if failed else 0)


def one(name: str, target: str, folder: Path, recipe: str = "") -> Outcome:
    """Export one model for one target; a failure is an outcome too."""
    from tpu_export.model_zoo.zoo import entry
    from tpu_export.parity.export import export
    from tpu_export.parity.litert_options import LiteRtOptions
    from tpu_export.runtime.errors import TpuExportError

    outcome = Outcome(name, target, None, "", recipe)
    click.echo(f"== {outcome.what}", err=True)
    suffix = f"-{recipe}{SUFFIXES[target]}" if recipe else SUFFIXES[target]
    try:
        options = LiteRtOptions(recipe, entry(name).calls()) if recipe else None
        result: Any = export(
            source(f"zoo:{name}"),
            target=target,
            output=folder / f"{name}{suffix}",
            tolerance=limit(entry(name), target),
            litert=options,
            progress=ProgressLines(),
        )
    except TpuExportError as error:
        return replace(outcome, error=f"{error.code} {error.message}")
    except Exception as error:  # the page must list it, and the rest must be tried
        log.debug("%s", outcome.what, exc_info=True)
        return replace(outcome, error=f"{type(error).__name__}: {error}")
    return replace(outcome, result=result)


def limit(entry: Any, target: str) -> float | None:
    """Return the entry's own tolerance for a target, None for the default."""
    own = entry.tolerance.get(target)
    return own.limit if own is not None else None

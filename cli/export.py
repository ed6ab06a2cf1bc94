"""The main job: tpu-export [MODEL] --target … -o FILE."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from tpu_export.cli.buckets import buckets
from tpu_export.cli.failures import UsageError
from tpu_export.cli.litert_options import litert_options, read_litert_options
from tpu_export.cli.models import configuration, only_model, source
from tpu_export.cli.near import did_you_mean
from tpu_export.cli.output import ProgressLines, print_json, print_result
from tpu_export.cli.tolerance import tolerance_option
from tpu_export.cli.verbosity import verbose_option

TARGETS = {"cloud-tpu": ".tpuexe", "litert": ".tflite", "stablehlo": ".stablehlo"}
DEFAULT_TOPOLOGIES = ("v5e-1", "v6e-1")
NO_TOPOLOGY = "none"

# Endings of other files: a MODEL under one of them would be lost.
_OTHERS = frozenset(
    {".py", ".pt2", ".pt", ".onnx", ".safetensors", ".tpuexe", ".tflite"}
)


@click.command("export")
@click.argument("model", required=False)
@click.option("--target", help=f"One of {', '.join(TARGETS)}.  [default: cloud-tpu]")
@click.option("-o", "--output", type=click.Path(), help="File (or folder) to write.")
@click.option(
    "-t",
    "--topology",
    multiple=True,
    help="TPU to compile for: v5e-1, v6e-8, v6e:2x2 …; repeat or separate by commas; "
    "none: no TPU, CPU only.  [default: v5e-1,v6e-1]",
)
@click.option(
    "--bucket",
    multiple=True,
    metavar="NAME=SIZES",
    help="Sizes of a dynamic dimension to compile for: batch=1,8,32; repeat for others. "
    "Every combination is compiled and proven.  [default: the example's sizes]",
)
@click.option(
    "--cpu-engine",
    default="xla",
    show_default=True,
    metavar="ENGINE",
    help="What runs the .tpuexe on a CPU: xla; litert, whose .tflite is then in it too; "
    "or auto, the faster one as measured here.",
)
@click.option("--no-parity", is_flag=True, help="Write without the proof.")
@tolerance_option
@click.option(
    "--seed", type=int, default=1, show_default=True, help="Of parity's second inputs."
)
@litert_options
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="No progress lines.")
@verbose_option
def command(
    model: str | None,
    target: str | None,
    output: str | None,
    topology: tuple[str, ...],
    bucket: tuple[str, ...],
    **options: Any,
) -> None:
    """Export MODEL, prove the result against torch eager, and write it."""
    settings = configuration(Path.cwd()) if model is None else {}
    text = model or settings.get("model") or only_model(Path.cwd())
    target = target or settings.get("target", "cloud-tpu")
    names = _topologies(topology, settings)
    options["buckets"] = buckets(bucket, settings)
    check(target, names)
    check_topology_fits(target, topology)
    options["litert"] = read_litert_options(target, options)
    found = source(text)
    final = Path(output or settings.get("output") or f"{found.name}{TARGETS[target]}")
    check_output(final, target)
    result = export_source(found, target, final, names, options)
    if options["as_json"]:
        print_json(result.to_json())
    else:
        print_result(result)


def check(target: str, topologies: tuple[str, ...]) -> None:
    """Refuse what cannot be made before any work starts."""
    if target not in TARGETS:
        near = did_you_mean(target, TARGETS, cutoff=0.5)
        raise UsageError(
            f"unknown target {target!r}",
            hint=f"{near} targets are {', '.join(TARGETS)}; onnx is planned".lstrip(),
        )
    from tpu_export.converters.tpu.topologies import parse_topology

    for name in topologies:
        parse_topology(name)


def check_topology_fits(target: str, given: tuple[str, ...]) -> None:
    """Refuse topologies of the command line that nothing would be compiled for."""
    if target != "cloud-tpu" and given and _topologies(given, {}):
        raise UsageError(
            f"-t {','.join(given)} has no use with --target {target}",
            hint="leave -t out; --target cloud-tpu compiles for topologies",
        )


def check_output(output: Path, target: str = "cloud-tpu") -> None:
    """Refuse a place that cannot be written to before minutes of work, not after."""
    hint = "choose another --output"
    if not os.access(output.parent, os.W_OK):
        reason = "no permission" if output.parent.is_dir() else "no such folder"
    elif (
        target == "stablehlo"
        and output.exists()
        and not (output / "manifest.json").is_file()
    ):
        reason = "it exists and is no result of an earlier export"
    elif target != "stablehlo" and output.is_dir():
        reason = "it is a folder"
        hint = (
            f"name a file in it, such as --output {output / 'model'}{TARGETS[target]}"
        )
    elif target != "stablehlo" and output.suffix in _OTHERS - {TARGETS[target]}:
        reason = f"that is no name of a {TARGETS[target]}"
        hint = f"name it {output.with_suffix(TARGETS[target])}"
    else:
        return
    raise UsageError(f"cannot write {output}: {reason}", hint=hint)


def export_source(
    found: Any, target: str, output: Path, topologies: tuple[str, ...], options: Any
) -> Any:
    """Run the export with progress lines."""
    from tpu_export.parity.export import export

    progress = ProgressLines(quiet=options["quiet"] or options["as_json"])
    try:
        return export(
            found,
            target=target,
            topologies=topologies,
            buckets=options["buckets"],
            output=output,
            parity=not options["no_parity"],
            tolerance=options["tolerance"],
            seed=options["seed"],
            cpu_engine=options["cpu_engine"],
            litert=options["litert"],
            progress=progress,
        )
    finally:
        progress.close()


def _topologies(given: tuple[str, ...], settings: dict[str, Any]) -> tuple[str, ...]:
    """Return the topologies to compile for; () only where `none` says so.

    Raises:
        UsageError: no name is given, or `none` among others.
    """
    listed = given or tuple(settings.get("topologies", DEFAULT_TOPOLOGIES))
    parts = [part.strip() for text in listed for part in text.split(",")]
    names = tuple(part for part in parts if part)
    if not names:
        place = "-t" if given else "topologies of pyproject.toml"
        raise UsageError(
            f"{place} names no topology",
            hint="name some, such as -t v5e-1,v6e-1, or -t none for no TPU (CPU only)",
        )
    if NO_TOPOLOGY in names and len(names) > 1:
        raise UsageError(
            f"{NO_TOPOLOGY} stands among topologies: {', '.join(names)}",
            hint="leave it out, or give it alone for no TPU (CPU only)",
        )
    return () if names == (NO_TOPOLOGY,) else names

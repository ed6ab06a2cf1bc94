"""tpu-export inspect ARTIFACT."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpu_export.cli import integers
from tpu_export.cli.output import print_json, print_table, size_text
from tpu_export.cli.tflite import is_tflite
from tpu_export.cli.tflite_inspect import show

if TYPE_CHECKING:
    from tpu_export.runtime.artifact import Artifact


@click.command("inspect")
@click.argument("artifact", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(artifact: str, as_json: bool) -> None:
    """Show what a .tpuexe or a .tflite holds; nothing in it is run."""
    if is_tflite(artifact):
        show(Path(artifact), as_json=as_json)
        return
    from tpu_export.runtime.artifact import Artifact
    from tpu_export.runtime.signature import sizes_text

    found = summary(Artifact(artifact))
    if as_json:
        print_json(found)
        return
    click.echo(f"{artifact}: format {found['version']}, {size_text(found['size'])}")
    click.echo(
        "made by " + ", ".join(f"{k} {v}" for k, v in found["producers"].items())
    )
    for name, text in found["signatures"].items():
        click.echo(f"\n{text}")
        if found["buckets"][name]:
            click.echo(
                f"  buckets: {', '.join(map(sizes_text, found['buckets'][name]))}"
            )
    click.echo(
        f"\nweights: {found['weights']} tensors, {size_text(found['weight_bytes'])}"
    )
    for name, tensors in found["integers"].items():
        click.echo(f"\n{integers.summary(name, tensors)}")
        print_table(integers.lines(tensors))
    if found["executables"]:
        click.echo("executables:")
        print_table(_executable_lines(found["executables"]))
    if found["cpu_engines"]:
        click.echo("engines on a CPU:")
        print_table(_engine_lines(found["cpu_engines"]))
    if found["report"]:
        click.echo("compiler's estimates, for one chip:")
        print_table(_report_lines(found["report"]))
    click.echo("entries:")
    print_table([[name, size_text(size)] for name, size in found["entries"].items()])


def summary(artifact: Artifact) -> dict[str, Any]:
    """Return what an artifact holds as plain values."""
    from tpu_export.runtime.codec import encode
    from tpu_export.runtime.manifest import buckets

    manifest = artifact.manifest
    stored = {(w.entry, w.key) for w in manifest.weights.values()}
    return {
        "version": manifest.version,
        "size": artifact.path.stat().st_size,
        "producers": manifest.producers,
        "signatures": {n: describe(p.signature) for n, p in manifest.programs.items()},
        "buckets": {
            name: buckets(
                e for e in manifest.executables if e.signature == name and e.dims
            )
            for name in manifest.programs
        },
        "weights": len(stored),
        "weight_bytes": sum(
            e.size for n, e in manifest.entries.items() if n.startswith("weights/")
        ),
        "executables": [
            {
                "signature": x.signature,
                "platform": x.platform,
                "topology": x.topology,
                "dims": x.dims,
                "size": manifest.entries[x.main].size,
                "compiler": encode(x.compiler),
            }
            for x in manifest.executables
        ],
        "cpu_engines": encode(manifest.cpu_engines),
        "entries": {name: entry.size for name, entry in manifest.entries.items()},
        "manifest": encode(manifest),
        "report": reports(artifact, "report/"),
        "integers": {
            name.removeprefix("integers/").removesuffix(".json"): tensors
            for name, tensors in reports(artifact, "integers/").items()
        },
    }


def describe(signature: Any) -> str:
    """Return a signature with its results and state as text."""
    from tpu_export.runtime.inputs import describe as inputs
    from tpu_export.runtime.inputs import describe_tensor

    lines = [inputs(signature)]
    lines += [f"  -> {s.name}: {describe_tensor(s)}" for s in signature.outputs]
    lines += [f"  keeps {s.name}: {describe_tensor(s)}" for s in signature.state]
    lines += [f"  writes to {name}" for name in signature.mutated_inputs]
    lines += [
        f"  {d.name}: {d.minimum} … {d.maximum if d.maximum is not None else 'any'}"
        for d in signature.dims
    ]
    lines += [
        f"  {d.name}: {d.minimum} … {d.maximum if d.maximum is not None else 'any'}, "
        "counted in the data of each call"
        for d in signature.counted
    ]
    lines += [f"  only where {constraint}" for constraint in signature.constraints]
    lines += [f"  {r.name}: {r.low} … {r.high} ({r.because})" for r in signature.ranges]
    return "\n".join(lines)


def reports(artifact: Artifact, folder: str) -> dict[str, Any]:
    """Return the reports of a folder by entry name, as written at export."""
    import json

    names = [name for name in artifact.names if name.startswith(folder)]
    return {name: json.loads(bytes(artifact.entry(name))) for name in names}


def _report_lines(found: dict[str, Any]) -> list[list[str]]:
    header = ["report", "HBM", "of", "GFLOP", "kilocycles", "dearest module"]
    rows = []
    for name, report in found.items():
        memory = report["memory"]
        total = sum(memory[k] for k in ("arguments", "outputs", "temp", "code"))
        dearest = report["places"][0][0] if report["places"] else ""
        rows.append(
            [
                name.removeprefix("report/").removesuffix(".json"),
                size_text(total - memory["alias"]),
                size_text(memory["available"]),
                f"{report['flops'] / 1e9:.2f}",
                f"{report['cycles'] / 1e3:.0f}",
                dearest or "(root)",
            ]
        )
    return [header, *rows]


def _executable_lines(executables: list[dict[str, Any]]) -> list[list[str]]:
    header = ["signature", "platform", "topology", "size", "jaxlib", "options"]
    rows = [
        [
            x["signature"],
            x["platform"],
            x["topology"] + "".join(f" {k}={v}" for k, v in x["dims"].items()),
            size_text(x["size"]),
            x["compiler"]["jaxlib"],
            ", ".join(x["compiler"]["options"]) or "-",
        ]
        for x in executables
    ]
    return [header, *rows]


def _engine_lines(engines: list[dict[str, Any]]) -> list[list[str]]:
    header = ["signature", "engine", "LiteRT ms at export", "XLA ms"]
    rows = [
        [
            x["signature"] + "".join(f" {k}={v}" for k, v in x["dims"].items()),
            x["engine"],
            *(
                f"{x['microseconds'][k] / 1e3:.3g}" if k in x["microseconds"] else "-"
                for k in ("litert", "xla")
            ),
        ]
        for x in engines
    ]
    return [header, *rows]

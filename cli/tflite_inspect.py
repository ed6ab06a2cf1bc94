"""What `tpu-export inspect` shows of a .tflite, and what `diff` compares."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click

from tpu_export.cli.output import print_json, print_table, size_text

LARGEST = 10  # constants that are shown


def summary(path: Path, *, hashes: bool = False) -> dict[str, Any]:
    """Return what a .tflite holds as plain values.

    Raises:
        LiteRtFileError: it is none, or damaged.
    """
    from dataclasses import asdict

    from tpu_export.converters.litert.contents import read_contents
    from tpu_export.converters.litert.document import read_document

    contents = read_contents(path, hashes=hashes)
    kinds: Counter[str] = Counter()
    for constant in contents.constants:
        kinds[constant.dtype] += constant.size
    return {
        "size": contents.size,
        "signatures": {
            name: {
                "inputs": [{**asdict(s), "text": str(s)} for s in found.inputs],
                "outputs": [{**asdict(s), "text": str(s)} for s in found.outputs],
                "ops": dict(found.ops),
            }
            for name, found in contents.signatures.items()
        },
        "constants": [asdict(c) for c in contents.constants],
        "constant_bytes": dict(kinds.most_common()),
        "metadata_entries": {n: len(b) for n, b in contents.metadata.items()},
        "metadata": read_document(path, contents.metadata),
    }


def show(path: Path, *, as_json: bool) -> None:
    """Print a .tflite."""
    found = summary(path, hashes=as_json)
    if as_json:
        print_json(found)
        return
    click.echo(f"{path}: LiteRT, {size_text(found['size'])}")
    document = found["metadata"]
    if document is None:
        click.echo("not written by tpu-export, or without its metadata")
    else:
        _show_document(document)
    for name, signature in found["signatures"].items():
        click.echo(f"\n{name or '(no signature)'}")
        for side, arrow in (("inputs", " "), ("outputs", " ->")):
            for slot in signature[side]:
                click.echo(f" {arrow} {slot['name']}: {slot['text']}")
        ops = ", ".join(f"{op} {count}" for op, count in signature["ops"].items())
        click.echo(f"  ops: {ops}")
    _show_constants(found)


def _show_document(document: dict[str, Any]) -> None:
    makers = ", ".join(f"{k} {v}" for k, v in document["producers"].items())
    click.echo(f"made by {makers}")
    if "licence" in document:
        click.echo(f"licence: {document['licence'].splitlines()[0]}")
    if "labels" in document:
        click.echo(f"labels: {len(document['labels'])}")
    for name, norm in document.get("preprocessing", {}).items():
        click.echo(f"in the file: ({name}/255 - {norm['mean']}) / {norm['std']}")
    quantization = document.get("quantization")
    if quantization:
        digest = quantization["sha256"][:12]
        click.echo(f"quantized: {quantization['recipe']} (sha256 {digest}…)")
    for rung, proof in document.get("parity", {}).items():
        worst = proof["worst"]
        rel = worst["max_rel"]
        click.echo(
            f"proof: {rung}, {proof['comparisons']} comparisons with torch eager, worst "
            f"max rel {'inf' if rel is None else f'{rel:.2e}'}"
        )
    for name, whose in document.get("golden", {}).items():
        click.echo(f"golden: {name}, outputs of {whose}")


def _show_constants(found: dict[str, Any]) -> None:
    kinds = ", ".join(f"{k} {size_text(v)}" for k, v in found["constant_bytes"].items())
    click.echo(f"\nconstants: {len(found['constants'])}, {kinds or 'none'}")
    largest = sorted(found["constants"], key=lambda c: -c["size"])[:LARGEST]
    rows = [
        [
            c["name"][-60:],
            f"{c['dtype']}{list(c['shape'])}",
            size_text(c["size"]),
            c["op"],
        ]
        for c in largest
    ]
    if rows:
        print_table([["largest", "type", "bytes", "read by"], *rows])

"""tpu-export ops MODEL, or an op's name."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from tpu_export.cli.failures import UsageError
from tpu_export.cli.models import source
from tpu_export.cli.near import near_words, question
from tpu_export.cli.output import print_json, print_table

if TYPE_CHECKING:
    from tpu_export.exporter.sources import Source

NAMESPACES = ("aten.", "quantized_decomposed.", "prims.")


@click.command("ops")
@click.argument("subject")
@click.option(
    "--target", type=click.Choice(["cloud-tpu", "litert"]), default="cloud-tpu"
)
@click.option("--json", "as_json", is_flag=True)
@click.pass_context
def command(ctx: click.Context, subject: str, target: str, as_json: bool) -> None:
    """Show how each op of a model is lowered; or of one op, such as aten.gelu.default.

    "rule": ours; "yours": of your model file; "decomposed": by torch's tables into ops with
    rules; "unsupported": neither.
    """
    if subject.startswith(NAMESPACES):
        covered = overloads_with_rules(subject, target)
        if as_json:
            print_json({"op": subject, "rule": bool(covered)})
        elif covered:
            click.echo("\n".join(f"{op}: rule" for op in covered))
        else:
            click.echo(f"{subject}: no rule of its own; it may decompose in a model")
        ctx.exit(0 if covered else 1)
    from tpu_export.converters.stablehlo.coverage import coverage
    from tpu_export.parity.debug import NO_OPS

    name: Literal["xla", "litert"] = "litert" if target == "litert" else "xla"
    found = [
        op
        for captured in _model(subject).captures().values()
        for op in coverage(captured.program, name, captured.model_file)
    ]
    if as_json:
        print_json([asdict(op) for op in found])
    elif not found:
        click.echo(NO_OPS)
    else:
        lines = [
            [
                op.op,
                str(op.count),
                f"yours: {op.own}" if op.own else op.status,
                op.places[0] + (" …" if op.count > 1 else ""),
            ]
            for op in found
        ]
        print_table([["op", "count", "status", "first at"], *lines])
    ctx.exit(1 if any(op.status == "unsupported" for op in found) else 0)


def _model(text: str) -> Source:
    from tpu_export.exporter.sources import UnknownSourceError

    try:
        return source(text)
    except UnknownSourceError as error:
        if Path(text).exists() or Path(text).suffix in (".tpuexe", ".tflite"):
            raise
        near = near_ops(text) or "an op is written as aten.gelu.default;"
        raise UnknownSourceError(
            f"{error.message}, nor an op", hint=f"{near} {error.hint}"
        ) from error


def overloads_with_rules(name: str, target: str) -> list[str]:
    """Return which overloads have a rule: of the one that is named, or of all of an op.

    Raises:
        UsageError: torch has no such op.
    """
    import torch

    from tpu_export.converters.stablehlo.ops import find_rule

    namespace, path, *overload = name.split(".")
    try:
        packet = getattr(getattr(torch.ops, namespace), path)
        ops = [getattr(packet, part) for part in overload or packet.overloads()]
    except AttributeError as error:
        near = near_ops(name) or "write it as aten.gelu.default"
        raise UsageError(f"torch has no op {name!r}", hint=near) from error
    kind: Literal["xla", "litert"] = "litert" if target == "litert" else "xla"
    return [str(op) for op in ops if find_rule(op, kind) is not None]


def near_ops(text: str) -> str:
    """Ask for ops with rules whose names are near, with or without namespace and overload."""
    from tpu_export.converters.stablehlo.ops import registered_ops

    words = text.removeprefix("torch.").split(".")
    word = words[1] if f"{words[0]}." in NAMESPACES and words[1:] else words[0]
    known: dict[str, list[str]] = {}
    for op in map(str, registered_ops()):
        if "." in op:  # not a higher-order op
            known.setdefault(op.split(".")[1], []).append(op)
    names = [word] if word in known else near_words(word, known, 0.75)
    near = [op for name in names for op in known[name]]
    return question(near[:3])

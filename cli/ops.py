"""tpu-export ops MODEL, or an op's name."""

from __future__ import annotations

from dataclasses import asdict
from typing import Literal

import click

from tpu_export.cli.failures import UsageError
from tpu_export.cli.models import source
from tpu_export.cli.output import print_json, print_table


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
    if subject.startswith(("aten.", "quantized_decomposed.", "prims.")):
        covered = one_op(subject, target)
        status = (
            "rule" if covered else "no rule of its own; it may decompose in a model"
        )
        if as_json:
            print_json({"op": subject, "rule": covered})
        else:
            click.echo(f"{subject}: {status}")
        ctx.exit(0 if covered else 1)
    from tpu_export.converters.stablehlo.coverage import coverage
    from tpu_export.parity.debug import NO_OPS

    name: Literal["xla", "litert"] = "litert" if target == "litert" else "xla"
    found = [
        op
        for captured in source(subject).captures().values()
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


def one_op(name: str, target: str) -> bool:
    """Whether an op has a rule.

    Raises:
        UsageError: torch has no such op.
    """
    import torch

    from tpu_export.converters.stablehlo.ops import find_rule

    namespace, *path = name.split(".")
    if len(path) == 1:
        path.append("default")
    try:
        op = getattr(getattr(getattr(torch.ops, namespace), path[0]), path[1])
    except AttributeError as error:
        raise UsageError(
            f"torch has no op {name!r}", hint="write it as aten.gelu.default"
        ) from error
    return find_rule(op, "litert" if target == "litert" else "xla") is not None

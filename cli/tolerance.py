"""--tolerance of the commands that compare."""

from __future__ import annotations

import math

import click


def _checked(
    ctx: click.Context, option: click.Parameter, value: float | None
) -> float | None:
    """Refuse what would fail or pass whatever is compared."""
    if value is None or (math.isfinite(value) and value >= 0):
        return value
    message = f"{value} is no limit: give a number such as 1e-3"
    raise click.BadParameter(message, ctx, option)


tolerance_option = click.option(
    "--tolerance",
    type=float,
    callback=_checked,
    help="Limit of max rel for all float outputs.",
)

"""Options of --target litert: how the .tflite is quantized."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tpu_export.cli.failures import UsageError

if TYPE_CHECKING:
    from tpu_export.parity.litert_options import LiteRtOptions

F = TypeVar("F", bound=Callable[..., Any])
_OPTIONS = (
    click.option(
        "--quantize",
        metavar="RECIPE",
        help="litert: dynamic-int8, dynamic-int4, dynamic-int4-block32, weight-int8, "
        "weight-int4, static-int8, static-int16, fp16, or a file recipe.toml.",
    ),
    click.option(
        "--calibrate",
        metavar="DATA",
        help="litert: real inputs for static recipes and the verdict: calls.npz, a folder "
        "of such files, or data.py:batches.",
    ),
    click.option(
        "--io-dtype",
        type=click.Choice(["float32", "int8", "uint8"]),
        default="float32",
        show_default=True,
        help="litert: dtype of floating-point inputs and outputs.",
    ),
    click.option(
        "--io-layout",
        multiple=True,
        metavar="LAYOUT",
        help="litert: nhwc: inputs and outputs of 4 dimensions have their channels last; "
        "NAME=nhwc: one of them; repeat for others.  [default: nchw]",
    ),
    click.option(
        "--min-snr",
        type=float,
        metavar="DB",
        help="litert: fail below these decibels against torch eager.",
    ),
    click.option(
        "--max-slowdown",
        type=float,
        metavar="RATIO",
        help="litert: fail above this multiple of the float file's time.",
    ),
)
_NAMES = ("quantize", "calibrate", "io_dtype", "min_snr", "max_slowdown")


def litert_options(command: F) -> F:
    """Add the options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def read_litert_options(target: str, options: dict[str, Any]) -> LiteRtOptions | None:
    """Take the options out of the others; None where there are none.

    Raises:
        UsageError: some are given for another target.
        RecipeError: some are about quantization, and no recipe is given.
    """
    quantize, calibrate, io_dtype, snr, slowdown = (options.pop(n) for n in _NAMES)
    layout = _layout(options.pop("io_layout"))
    given = [quantize, calibrate, snr, slowdown, layout or None]
    if all(x is None for x in given) and io_dtype == "float32":
        return None
    if target != "litert":
        raise UsageError(
            f"--target {target} keeps torch's layout"
            if layout
            else f"--target {target} is not quantized",
            hint="--quantize, --calibrate, --io-dtype, --io-layout, --min-snr and "
            "--max-slowdown go with --target litert",
        )
    from tpu_export.parity.litert_options import LiteRtOptions
    from tpu_export.parity.verdict import Gates

    found = LiteRtOptions(
        quantize,
        calibrate,
        io_dtype,
        Gates(snr, slowdown),
        io_layout=layout or "nchw",
    )
    found.check()
    return found


def _layout(given: Sequence[str]) -> dict[str, str]:
    """Return the layout by input or output; "*" is that of those without a name."""
    pairs = (text.rpartition("=") for text in given)
    return {name or "*": layout for name, _, layout in pairs}

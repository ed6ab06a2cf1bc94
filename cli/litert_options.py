"""Options of --target litert: how the .tflite is quantized, and what is in it besides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tpu_export.cli import annotation_options
from tpu_export.cli.failures import UsageError

if TYPE_CHECKING:
    from tpu_export.parity.litert_options import LiteRtOptions

F = TypeVar("F", bound=Callable[..., Any])
_OPTIONS = (
    click.option(
        "--quantize",
        metavar="RECIPE",
        help="litert: dynamic-int8, dynamic-int4, dynamic-int4-block32, weight-int8, "
        "weight-int4, weight-int4-block32, static-int8, static-int16, fp16, or a file recipe.toml.",
    ),
    click.option(
        "--calibrate",
        metavar="DATA",
        help="litert: real inputs for static recipes and the verdict: calls.npz, a folder "
        "of such files, or data.py:batches.",
    ),
    click.option(
        "--quantize-lint",
        type=click.Choice(["auto", "masks", "off"]),
        default="auto",
        show_default=True,
        help="litert: ops that the recipe would spoil get another number format, which is "
        "said, and far values of masks are clamped; masks: the latter only.",
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
        "NAME=nhwc: one of them; repeat for others; ndhwc: of 5, nlc: of 3.  [default: nchw]",
    ),
    click.option(
        "--preprocess",
        multiple=True,
        metavar="NAME=NORM",
        help="litert: input NAME is a uint8 image, normalized in the file: imagenet, unit "
        "(0 to 1), signed (-1 to 1), or mean/std of each channel: 0.5,0.5,0.5/0.2,0.2,0.2.",
    ),
    click.option(
        "--dynamic-dims",
        type=click.Choice(["buckets", "example", "symbolic"]),
        default="buckets",
        show_default=True,
        help="litert: a signature for each size of --bucket, or of sizes chosen within the "
        "range; example: one, of the example's sizes; symbolic: one, for any size.",
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
_NAMES = (
    "quantize",
    "calibrate",
    "quantize_lint",
    "io_dtype",
    "min_snr",
    "max_slowdown",
)
_MORE = ("io_layout", "preprocess", "dynamic_dims", *annotation_options.NAMES)
_FLAGS = [f"--{n.replace('_', '-')}" for n in (*_NAMES, *_MORE)]


def litert_options(command: F) -> F:
    """Add the options to a command."""
    for option in reversed((*_OPTIONS, *annotation_options.OPTIONS)):
        command = option(command)
    return command


def read_litert_options(target: str, options: dict[str, Any]) -> LiteRtOptions | None:
    """Take the options out of the others; None where there are none.

    Raises:
        UsageError: some are given for another target.
        RecipeError: some are about quantization, and no recipe is given.
    """
    quantize, calibrate, lint, io_dtype, snr, slowdown = map(options.pop, _NAMES)
    more = annotation_options.read_annotations(options)
    layout = _layout(options.pop("io_layout"))
    dims = options.pop("dynamic_dims")
    fixed = dims if dims != "buckets" else None
    images = _preprocess(options.pop("preprocess"))
    given = [quantize, calibrate, snr, slowdown, more or layout or images or fixed]
    if all(x is None for x in given) and (lint, io_dtype) == ("auto", "float32"):
        return None
    if target != "litert":
        raise UsageError(
            f"--target {target} has no metadata"
            if more
            else f"--target {target} keeps torch's layout"
            if layout
            else f"--target {target} has no preprocessing"
            if images
            else f"--target {target} keeps dynamic dimensions"
            if fixed
            else f"--target {target} is not quantized",
            hint=f"{', '.join(_FLAGS)} go with --target litert",
        )
    from tpu_export.parity.litert_options import LiteRtOptions
    from tpu_export.parity.verdict import Gates

    gates = Gates(snr, slowdown)
    more |= {"io_layout": layout} if layout else {}
    more |= {"preprocess": images} if images else {}
    found = LiteRtOptions(
        quantize, calibrate, io_dtype, gates, dynamic_dims=dims, lint=lint, **more
    )
    found.check()
    return found


def _preprocess(given: Sequence[str]) -> dict[str, str]:
    """Return the normalization of each input."""
    pairs = [text.partition("=") for text in given]
    for name, is_given, norm in pairs:
        if not (name and is_given and norm):
            raise UsageError(
                f"--preprocess {name}{is_given}{norm} names no input and normalization",
                hint="write --preprocess NAME=imagenet",
            )
    return {name: norm for name, _, norm in pairs}


def _layout(given: Sequence[str]) -> dict[str, str]:
    """Return the layout by input or output; "*" is that of those without a name."""
    pairs = (text.rpartition("=") for text in given)
    return {name or "*": layout for name, _, layout in pairs}

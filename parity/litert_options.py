"""What `export(..., target="litert")` may be told besides the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tpu_export.converters.litert.quantize.errors import CalibrationError, RecipeError
from tpu_export.converters.litert.quantize.job import Border
from tpu_export.converters.litert.quantize.lint import Lint
from tpu_export.converters.litert.quantize.recipes import read_recipe
from tpu_export.parity.annotations import Annotations
from tpu_export.parity.normalization import read_normalization
from tpu_export.parity.verdict import Gates

Calls: TypeAlias = Sequence[Mapping[str, Any]]
DynamicDims: TypeAlias = Literal["buckets", "example", "symbolic"]
# "nchw" or "nhwc" for all images, or by input or output; "*": those that are not named.
IoLayout: TypeAlias = str | Mapping[str, str]


@dataclass(frozen=True)
class LiteRtOptions:
    """How the .tflite is made and quantized.

    Attributes:
        recipe: a name of `quantize.NAMES`, or a .toml file; None: float.
        calibrate: where real inputs come from, as `--calibrate` takes it, or the calls of
            each signature themselves (inputs by name); of the only one without its name.
        io_dtype: of floating-point inputs and outputs, "float32", "int8" or "uint8".
        gates: limits for the verdict.
        annotations: labels, licence and golden arrays in the file.
        dynamic_dims: "buckets": a signature for each set of sizes of --bucket, or of sizes
            that are chosen; "example": one for the example's sizes; "symbolic": one for any size.
        io_layout: whether inputs and outputs of 4 dimensions have their channels last.
        lint: "auto": ops that the recipe would spoil get another number format, and far values
            of masks are clamped; "masks": the latter only; "off": neither.
        preprocess: inputs that are uint8 images in the file -> how they are normalized there,
            as `--preprocess` says it: "imagenet", or "mean,mean,mean/std,std,std".
    """

    recipe: str | Path | None = None
    calibrate: str | Calls | Mapping[str, Calls] | None = None
    io_dtype: Border = "float32"
    gates: Gates = field(default_factory=Gates)
    annotations: Annotations = field(default_factory=Annotations)
    dynamic_dims: DynamicDims = "buckets"
    io_layout: IoLayout = "nchw"
    lint: Lint = "auto"
    preprocess: Mapping[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Refuse what cannot be done, before any work.

        Raises:
            RecipeError: an unknown recipe, or an option about quantization without one.
            CalibrationError: a static recipe without data.
            AnnotationError: labels or licence cannot be read.
            PreprocessError: a normalization cannot be read.
        """
        self.annotations.read()
        for text in self.preprocess.values():
            read_normalization(text)
        given = {
            "--calibrate": self.calibrate is not None,
            "--quantize-lint": self.lint != "auto",
            "--io-dtype": self.io_dtype != "float32",
            "--min-snr": self.gates.min_snr is not None,
            "--max-slowdown": self.gates.max_slowdown is not None,
        }
        if self.recipe is None and any(given.values()):
            names = ", ".join(name for name, is_given in given.items() if is_given)
            raise RecipeError(
                f"{names} without a recipe",
                hint="say which with --quantize, such as dynamic-int8",
            )
        if self.recipe is None:
            return
        if self.dynamic_dims == "symbolic":
            raise RecipeError(
                "--quantize with --dynamic-dims symbolic",
                hint="quantized files have fixed sizes: leave --dynamic-dims out, there is a "
                "signature for each size then (--bucket)",
            )
        recipe = read_recipe(self.recipe)
        if recipe.is_static and self.calibrate is None:
            raise CalibrationError.without(recipe.name)

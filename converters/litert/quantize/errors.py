"""What can go wrong while a .tflite is quantized."""

from __future__ import annotations

from tpu_export.runtime.errors import TpuExportError


class RecipeError(TpuExportError):
    """A recipe that is not known, cannot be read, or does not fit the model."""

    code = "TPX-0610"


class CalibrationError(TpuExportError):
    """Calibration data that is missing, cannot be read, or does not fit the inputs."""

    code = "TPX-0611"

    @classmethod
    def without(cls, recipe: str) -> CalibrationError:
        """Return the error for a recipe that needs data, and has none."""
        return cls(
            f"{recipe} takes the ranges of activations from data, and there is none",
            hint="give real inputs: --calibrate calls.npz, a folder of such files, or "
            "data.py:batches",
        )


class QuantizedNothingError(TpuExportError):
    """A recipe that left the whole file in float; nothing is written."""

    code = "TPX-0612"


class QuantizerFailedError(TpuExportError):
    """ai-edge-quantizer refused the file, or died."""

    code = "TPX-0613"


class WeightsLostError(TpuExportError):
    """Weights that a number format cannot hold; nothing is written."""

    code = "TPX-0614"

    @classmethod
    def of(cls, place: str, what: str, recipe: str) -> WeightsLostError:
        """Return the error for weights of a place in a model."""
        return cls(
            f"{recipe} cannot hold the weights of {place}: {what}",
            hint="give that module dynamic-int8 or float in a recipe.toml, or leave "
            "--quantize-lint at auto",
        )

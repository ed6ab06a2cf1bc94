"""Quantization of a float .tflite by a recipe, on ai-edge-quantizer."""

from tpu_export.converters.litert.quantize.calibration import calibration_data
from tpu_export.converters.litert.quantize.coverage import Coverage, coverage
from tpu_export.converters.litert.quantize.quantizer import Quantized, quantize
from tpu_export.converters.litert.quantize.recipes import NAMES, Recipe, read_recipe

__all__ = [
    "NAMES",
    "Coverage",
    "Quantized",
    "Recipe",
    "calibration_data",
    "coverage",
    "quantize",
    "read_recipe",
]

"""64-bit integers computed in 32 bits where a range proof allows it: see `narrow`."""

from tpu_export.converters.stablehlo.narrowing.interval import Interval as Interval
from tpu_export.converters.stablehlo.narrowing.report import (
    IntegerTensor as IntegerTensor,
)
from tpu_export.converters.stablehlo.narrowing.rewrite import Argument as Argument
from tpu_export.converters.stablehlo.narrowing.rewrite import narrow as narrow

from tpu_export.converters.stablehlo.registry import find_rule as find_rule
from tpu_export.converters.stablehlo.registry import registered_ops as registered_ops

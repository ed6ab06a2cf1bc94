"""Every family of rules: importing this package fills the table."""

from __future__ import annotations

from tpu_export.converters.stablehlo.ops import activation as activation
from tpu_export.converters.stablehlo.ops import adaptive_pooling as adaptive_pooling
from tpu_export.converters.stablehlo.ops import attention as attention
from tpu_export.converters.stablehlo.ops import bessel as bessel
from tpu_export.converters.stablehlo.ops import binary as binary
from tpu_export.converters.stablehlo.ops import bitwise as bitwise
from tpu_export.converters.stablehlo.ops import casting as casting
from tpu_export.converters.stablehlo.ops import comparison as comparison
from tpu_export.converters.stablehlo.ops import control_flow as control_flow
from tpu_export.converters.stablehlo.ops import (
    control_flow_litert as control_flow_litert,
)
from tpu_export.converters.stablehlo.ops import convolution as convolution
from tpu_export.converters.stablehlo.ops import counting as counting
from tpu_export.converters.stablehlo.ops import creation as creation
from tpu_export.converters.stablehlo.ops import cumulative as cumulative
from tpu_export.converters.stablehlo.ops import distance as distance
from tpu_export.converters.stablehlo.ops import dropout as dropout
from tpu_export.converters.stablehlo.ops import embedding as embedding
from tpu_export.converters.stablehlo.ops import experts as experts
from tpu_export.converters.stablehlo.ops import fake_quantize as fake_quantize
from tpu_export.converters.stablehlo.ops import flex_attention as flex_attention
from tpu_export.converters.stablehlo.ops import folding as folding
from tpu_export.converters.stablehlo.ops import foreach as foreach
from tpu_export.converters.stablehlo.ops import (
    fractional_pooling as fractional_pooling,
)
from tpu_export.converters.stablehlo.ops import gradients as gradients
from tpu_export.converters.stablehlo.ops import incomplete_gamma as incomplete_gamma
from tpu_export.converters.stablehlo.ops import indexing as indexing
from tpu_export.converters.stablehlo.ops import least_squares as least_squares
from tpu_export.converters.stablehlo.ops import linear as linear
from tpu_export.converters.stablehlo.ops import linear_algebra as linear_algebra
from tpu_export.converters.stablehlo.ops import linear_litert as linear_litert
from tpu_export.converters.stablehlo.ops import loss as loss
from tpu_export.converters.stablehlo.ops import margin_loss as margin_loss
from tpu_export.converters.stablehlo.ops import masked_indexing as masked_indexing
from tpu_export.converters.stablehlo.ops import matrix_factors as matrix_factors
from tpu_export.converters.stablehlo.ops import normalization as normalization
from tpu_export.converters.stablehlo.ops import (
    normalization_litert as normalization_litert,
)
from tpu_export.converters.stablehlo.ops import norms as norms
from tpu_export.converters.stablehlo.ops import padding as padding
from tpu_export.converters.stablehlo.ops import polynomials as polynomials
from tpu_export.converters.stablehlo.ops import pooling as pooling
from tpu_export.converters.stablehlo.ops import pooling_litert as pooling_litert
from tpu_export.converters.stablehlo.ops import powers as powers
from tpu_export.converters.stablehlo.ops import (
    quantization_parameters as quantization_parameters,
)
from tpu_export.converters.stablehlo.ops import quantized as quantized
from tpu_export.converters.stablehlo.ops import quantized_litert as quantized_litert
from tpu_export.converters.stablehlo.ops import random as random
from tpu_export.converters.stablehlo.ops import recurrent as recurrent
from tpu_export.converters.stablehlo.ops import reduction as reduction
from tpu_export.converters.stablehlo.ops import repeating as repeating
from tpu_export.converters.stablehlo.ops import resize as resize
from tpu_export.converters.stablehlo.ops import resize_litert as resize_litert
from tpu_export.converters.stablehlo.ops import sampling as sampling
from tpu_export.converters.stablehlo.ops import scattering as scattering
from tpu_export.converters.stablehlo.ops import segments as segments
from tpu_export.converters.stablehlo.ops import selection as selection
from tpu_export.converters.stablehlo.ops import shape as shape
from tpu_export.converters.stablehlo.ops import shuffling as shuffling
from tpu_export.converters.stablehlo.ops import sizes as sizes
from tpu_export.converters.stablehlo.ops import slicing as slicing
from tpu_export.converters.stablehlo.ops import sorting as sorting
from tpu_export.converters.stablehlo.ops import special as special
from tpu_export.converters.stablehlo.ops import spectral as spectral
from tpu_export.converters.stablehlo.ops import stft as stft
from tpu_export.converters.stablehlo.ops import torchao as torchao
from tpu_export.converters.stablehlo.ops import torchao_litert as torchao_litert
from tpu_export.converters.stablehlo.ops import unary as unary
from tpu_export.converters.stablehlo.ops import unique as unique
from tpu_export.converters.stablehlo.registry import find_rule as find_rule
from tpu_export.converters.stablehlo.registry import registered_ops as registered_ops

"""Sizes of tensors as Python or JAX dimension expressions."""

from __future__ import annotations

import math
from typing import Any

import torch
from jax import Array

from tpu_export.converters.stablehlo.operands import axis
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten
Dim = Any  # an int or a JAX dimension expression


@lowers(aten.sym_size.int, aten.size.int)
def size(x: Array, dim: int) -> Dim:
    return x.shape[axis(dim, x.ndim)]


@lowers(aten.sym_size.default, aten.size.default)
def sizes(x: Array) -> list[Dim]:
    return list(x.shape)


@lowers(aten.sym_numel.default, aten.numel.default)
def numel(x: Array) -> Dim:
    return math.prod(x.shape)


@lowers(aten.sym_stride.int, aten.stride.int)
def stride(x: Array, dim: int) -> Dim:
    """As of a contiguous tensor: lowering has no other layout."""
    return math.prod(x.shape[axis(dim, x.ndim) + 1 :])


@lowers(aten.sym_storage_offset.default)
def storage_offset(x: Array) -> int:
    return 0

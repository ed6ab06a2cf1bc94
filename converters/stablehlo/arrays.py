"""torch tensors as numpy arrays and back: bit for bit, without a copy if possible."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tpu_export.converters.stablehlo.operands import DTYPES, TORCH_DTYPES

_CARRIERS = {1: torch.uint8, 2: torch.int16}  # for dtypes that numpy itself lacks


def as_numpy(tensor: torch.Tensor) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the tensor's values as an array of the same shape and dtype.

    It shares memory with a contiguous CPU tensor. bfloat16 and float8 use ml_dtypes.
    """
    dtype = DTYPES[tensor.dtype]
    dense = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    if dtype.type.__module__ == "numpy":
        return dense.numpy()
    return dense.view(_CARRIERS[dtype.itemsize]).numpy().view(dtype)


def as_tensor(array: np.ndarray[Any, np.dtype[Any]]) -> torch.Tensor:
    """Return a tensor with a copy of the array's values."""
    dtype = TORCH_DTYPES[np.dtype(array.dtype)]
    own = np.array(array, order="C")
    if own.dtype.type.__module__ == "numpy":
        return torch.from_numpy(own)
    return torch.from_numpy(own.view(f"i{own.itemsize}")).view(dtype)

"""The result of lowering one signature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from tpu_export.converters.stablehlo.narrowing import IntegerTensor
from tpu_export.converters.stablehlo.registry import Target
from tpu_export.runtime.signature import LoweredFunction, Signature


@dataclass(frozen=True)
class LoweredProgram:
    """One signature as StableHLO, with its weights as arguments.

    Attributes:
        signature: as captured, completed with state, mutated inputs.
        target: what it was lowered for.
        main: the function that each call runs.
        prepare: weight-only work, run once at load; None when there is none.
        weights: every raw weight that main or prepare takes, and the initial value of every state
            slot, by name. Tensors are the model's own, not copies; they may be non-contiguous.
            The slot of the seed (RNG) starts as uint32[2] zeros.
        counts: what gives the sizes that the data decides, in the order they run.
        integers: what became of each int64 tensor: 32 bits, or 64 and why.
        floats: why quantizations of the model are float arithmetic, as far as that is known.
    """

    signature: Signature
    target: Target
    main: LoweredFunction
    prepare: LoweredFunction | None
    weights: Mapping[str, torch.Tensor] = field(repr=False)
    counts: tuple[LoweredFunction, ...] = ()
    integers: tuple[IntegerTensor, ...] = field(default=(), repr=False)
    floats: tuple[str, ...] = ()

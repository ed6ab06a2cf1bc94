"""x[mask] whose mask is computed: the whole of x and the mask, until something reads it whole.

`a[mask] = b[mask] * 2` and `x[mask].sum()` have fixed shapes at both ends. What is between is
computed at every place, and the mask applied where it is written or reduced.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array
from torch._ops import OpOverload
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

from tpu_export.converters.stablehlo.context import current
from tpu_export.converters.stablehlo.errors import UnsupportedOptionError
from tpu_export.converters.stablehlo.in_place import functional_twin, is_in_place
from tpu_export.converters.stablehlo.location import spoken
from tpu_export.converters.stablehlo.operands import (
    DTYPES,
    axis,
    highest,
    lowest,
    widen,
)
from tpu_export.converters.stablehlo.ops.indexing import concrete

aten = torch.ops.aten


@dataclass(frozen=True, eq=False)
class Chosen:
    """The places of an array where a mask holds, in order, as one axis.

    shape == (*full.shape[:lead], n, *full.shape[lead + mask.ndim:]), n known at run time only.
    """

    full: Array
    mask: Array
    lead: int
    place: str

    @property
    def shape(self) -> tuple[Any, ...]:
        """None stands for the size that depends on the data."""
        rest = self.full.shape[self.lead + self.mask.ndim :]
        return (*self.full.shape[: self.lead], None, *rest)

    @property
    def dtype(self) -> Any:
        """As of the array that is chosen from."""
        return self.full.dtype

    @property
    def wide(self) -> Array:
        """The mask with axes of one, as it meets `full`."""
        rest = self.full.ndim - self.lead - self.mask.ndim
        return self.mask.reshape(*(1,) * self.lead, *self.mask.shape, *(1,) * rest)

    def meets(self, other: Chosen) -> bool:
        """Whether both choose by one mask, and their axes stand for one another."""
        same = self.mask is other.mask and self.lead == other.lead
        return same and self.full.ndim == other.full.ndim


def chosen(
    op: Any, rule: Callable[..., Any] | None, args: Any, kwargs: Mapping[str, Any]
) -> Any:
    """Return the result of an op that selects by a computed mask, or has such operands.

    None: the op has nothing to do with it.

    Raises:
        UnsupportedOptionError: the op needs to know how many places are chosen.
    """
    found = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, Chosen)]
    if not found:
        return _choose(op, args)
    twin = functional_twin(op) if is_in_place(op) else op
    result = None
    if twin in _SIZES:
        result = _size(*args)
    elif twin in _PUTS and isinstance(args[2], Chosen):
        result = _put(*args)
    elif twin in _REDUCTIONS and rule is not None:
        result = _reduced(twin, rule, *args, **kwargs)
    elif rule is not None and (twin in _AS_POINTWISE or _is_pointwise(twin)):
        result = _everywhere(twin, rule, args, kwargs)
    if result is None:
        raise _unknown_size(found[0], f"; {op} needs it")
    return result


def check_outputs(output: Any) -> None:
    """Refuse results whose size depends on the data."""
    for x in pytree.tree_leaves(output):
        if isinstance(x, Chosen):
            raise _unknown_size(x, "")


def cast(x: Array | Chosen, dtype: Any) -> Array | Chosen:
    """Return the value that an in-place op leaves in a tensor of the dtype."""
    if isinstance(x, Chosen):
        return replace(x, full=x.full.astype(dtype))
    return jnp.asarray(x, dtype)


def _choose(op: object, args: Sequence[Any]) -> Chosen | None:
    if current().sizes:
        return None  # the size is a dimension of main
    if op is aten.masked_select.default:
        x, mask, lead = args[0], args[1], 0
        x = jnp.broadcast_to(x, np.broadcast_shapes(x.shape, mask.shape))
        if mask.shape != x.shape:
            mask = jnp.broadcast_to(mask, x.shape)
    elif op in (aten.index.Tensor, aten._unsafe_index.Tensor):
        given = [(d, i) for d, i in enumerate(args[1]) if i is not None]
        if len(given) != 1:
            return None
        x, (lead, mask) = args[0], given[0]
    else:
        return None
    if concrete(mask) is not None or mask.dtype != bool or not mask.ndim:
        return None
    return Chosen(x, mask, lead, current().scope)


def _unknown_size(found: Chosen, reader: str) -> UnsupportedOptionError:
    return UnsupportedOptionError(
        "selecting by a boolean tensor has a shape that depends on the data, "
        f"at {spoken(found.place)}{reader}",
        hint="use torch.where or a mask that keeps the shape; sums of the selection, and "
        "writing it back by the same mask, are understood",
    )


_SIZES = (aten.sym_size.int, aten.size.int)
_PUTS = (aten.index_put.default, aten._unsafe_index_put.default)
# They work on the last axes alone, whatever is before them: how many of these axes.
_ROWWISE: Mapping[object, Callable[[Any], int]] = {
    aten.linear.default: lambda args: 1,
    aten.layer_norm.default: lambda args: len(args[1]),
    aten.embedding.default: lambda args: 0,
}
_AS_POINTWISE = frozenset(
    {
        *_ROWWISE,
        aten.clone.default,
        aten.contiguous.default,
        aten.detach.default,
        aten._to_copy.default,
        aten.to.dtype,
        aten.to.dtype_layout,
        aten.__and__.Tensor,
        aten.__or__.Tensor,
        aten.__xor__.Tensor,
    }
)
_REDUCTIONS: Mapping[object, Callable[[Any], Any]] = {
    aten.sum.default: lambda dtype: 0,
    aten.mean.default: lambda dtype: 0,
    aten.prod.default: lambda dtype: 1,
    aten.any.default: lambda dtype: False,
    aten.all.default: lambda dtype: True,
    aten.max.default: lowest,
    aten.min.default: highest,
}


def _count(chosen: Chosen) -> Array:
    return jnp.sum(chosen.mask, dtype=jnp.int64)


def _size(chosen: Chosen, dim: int) -> Any:
    known = chosen.shape[axis(dim, len(chosen.shape))]
    return _count(chosen) if known is None else known


def _put(
    x: Array, indices: Sequence[Any], values: Chosen, accumulate: bool = False
) -> Array | None:
    lead = len(indices) - 1
    same = indices[lead] is values.mask and all(i is None for i in indices[:lead])
    if not same or values.lead != lead or values.full.shape != x.shape:
        return None
    new = values.full.astype(x.dtype)
    return jnp.where(values.wide, x + new if accumulate else new, x)


def _reduced(
    op: object,
    rule: Callable[..., Any],
    chosen: Chosen,
    *,
    dtype: torch.dtype | None = None,
) -> Any:
    full = chosen.full if dtype is None else chosen.full.astype(DTYPES[dtype])
    kept = jnp.where(
        chosen.wide, full, jnp.asarray(_REDUCTIONS[op](full.dtype), full.dtype)
    )
    if op is not aten.mean.default:
        return rule(kept)
    others = math.prod(d for d in chosen.shape if d is not None)
    kept = widen(kept)
    mean = jnp.sum(kept) / (_count(chosen) * others).astype(kept.dtype)
    return mean.astype(full.dtype)


def _everywhere(
    op: Any, rule: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]
) -> Chosen | None:
    """Compute at every place; None when operands would not meet as they do once chosen."""
    leaves = pytree.tree_leaves((args, kwargs))
    first = next(x for x in leaves if isinstance(x, Chosen))
    rest = len(first.shape) - first.lead - 1
    rows = _ROWWISE.get(op)
    if rows is not None and rows(args) > rest:
        return None
    for x in leaves:
        if isinstance(x, Chosen):
            fits = x.meets(first)
        else:
            fits = rows is not None or getattr(x, "ndim", 0) <= rest
        if not fits:
            return None
    args, kwargs = pytree.tree_map_only(Chosen, lambda x: x.full, (args, kwargs))
    return replace(first, full=rule(*args, **kwargs))


def _is_pointwise(op: Any) -> bool:
    return _is_function(op) and torch.Tag.pointwise in op.tags


def _is_function(op: Any) -> bool:
    """Whether equal operands give equal results, and nothing is written."""
    if not isinstance(op, OpOverload) or op._schema.is_mutable:
        return False
    return torch.Tag.nondeterministic_seeded not in op.tags


def repeated_masks(graph: Graph) -> dict[Node, Node]:
    """Return masks that an earlier node computed already: a[a > 0] = b[a > 0]."""
    found: dict[Node, Node] = {}
    seen: dict[Any, Node] = {}
    for node in graph.nodes:
        if is_in_place(node.target):
            seen.clear()  # the same words may mean other values from here on
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.dtype != torch.bool:
            continue
        if not _is_function(node.target):
            continue
        args, kwargs = torch.fx.node.map_arg(
            (node.args, node.kwargs), lambda n: found.get(n, n)
        )
        first = seen.setdefault((node.target, str((args, kwargs))), node)
        if first is not node:
            found[node] = first
    return found

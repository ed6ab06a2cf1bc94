"""How many: the value of each size that the data decides, by the op that has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import torch
from jax import Array
from torch.fx import Node

from tpu_export.converters.stablehlo.counted import shape_symbols
from tpu_export.converters.stablehlo.errors import UnsupportedOptionError
from tpu_export.converters.stablehlo.mutating import called_op
from tpu_export.converters.stablehlo.operands import axis
from tpu_export.converters.stablehlo.repeats import Repeats
from tpu_export.converters.stablehlo.runs import Runs

aten = torch.ops.aten


@dataclass
class Counting:
    """The counted sizes of a lowering.

    Attributes:
        dims: the JAX dimension of each, by torch's symbol.
        counts: its value, as traced, by torch's symbol.
    """

    dims: Mapping[str, Any]
    counts: dict[str, Array] = field(default_factory=dict)

    def sizes(self, node: Node) -> list[Any]:
        """Return the counted sizes of a node's result, in order, each once."""
        symbols = [*map(str, shape_symbols(node))]
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt) and value.node.expr.is_Symbol:
            symbols.append(str(value.node.expr))
        return [self.dims[s] for s in dict.fromkeys(symbols) if s in self.dims]

    def note(self, node: Node, args: Any, kwargs: Any) -> None:
        """Count what a node decides."""
        for symbol in map(str, node.meta.get("unbacked_bindings") or {}):
            if symbol in self.dims:
                rule = _COUNTS.get(called_op(node))
                if rule is None:
                    raise UnsupportedOptionError(
                        f"{called_op(node)} has a shape that depends on the data",
                        hint="compute with torch.where or a mask that keeps the shape",
                    )
                count = rule(*args, **kwargs)
                self.counts[symbol] = jnp.asarray(count).astype(jnp.int64).reshape(())


def _selected(_: Array, indices: Any) -> Array:
    masks = [i for i in indices if i is not None and i.dtype in (bool, jnp.uint8)]
    return jnp.count_nonzero(masks[0])


def _repeated(*args: Any, output_size: Any = None) -> Any:
    if output_size is not None:
        return output_size
    each = Repeats.of(*args).each
    return _refused_if(each < 0, each.sum())


def _binned(x: Array, weights: Any = None, minlength: int = 0) -> Array:
    values = x.astype(jnp.int64)
    return _refused_if(values < 0, jnp.max(values, initial=minlength - 1) + 1)


def _refused_if(wrong: Array, count: Array) -> Array:
    """Return a count, or -1, which is outside of every range: torch raises here."""
    return jnp.where(jnp.any(wrong), -1, count)


def _sliced(
    x: Array, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Array:
    first, last = slice_ends(x.shape[axis(dim, x.ndim)], start, end)
    return jnp.maximum(last - first + step - 1, 0) // step


def slice_ends(size: Any, start: Any, end: Any) -> tuple[Array, Array]:
    """Return 0 <= start, end <= size of a slice, as Python counts them."""
    length = jnp.asarray(size, jnp.int64)

    def place(bound: Any, default: Any) -> Array:
        value = jnp.asarray(default if bound is None else bound, jnp.int64)
        return jnp.clip(jnp.where(value < 0, value + length, value), 0, length)

    return place(start, 0), place(end, length)


_COUNTS: dict[Any, Callable[..., Any]] = {
    aten.index.Tensor: _selected,
    aten._unsafe_index.Tensor: _selected,
    aten.nonzero.default: jnp.count_nonzero,
    aten.argwhere.default: jnp.count_nonzero,
    aten.where.default: jnp.count_nonzero,
    aten.nonzero_numpy.default: jnp.count_nonzero,
    aten.masked_select.default: lambda x, mask: jnp.count_nonzero(
        jnp.broadcast_arrays(x, mask)[1]
    ),
    aten.item.default: lambda x: x,
    aten._local_scalar_dense.default: lambda x: x,
    aten.repeat_interleave.Tensor: _repeated,
    aten.repeat_interleave.self_Tensor: _repeated,
    aten.bincount.default: _binned,
    aten.slice.Tensor: _sliced,
    aten._unique2.default: lambda x, *_, **__: Runs.sorted(x).count,
    aten._unique.default: lambda x, *_, **__: Runs.sorted(x).count,
    aten.unique_dim.default: lambda x, dim, *_, **__: Runs.rows(x, dim, True).count,
    aten.unique_consecutive.default: lambda x, *flags, dim=None, **_: (
        Runs.consecutive(x, flags[2] if len(flags) > 2 else dim).count
    ),
}

"""Ops of the user that write to their arguments, as torch makes them functional.

torch wraps such a call in auto_functionalized_v2: it takes the tensors that own the memory
("bases"), and gives the op's results, then every base anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax
from torch._ops import OpOverload
from torch.fx import Node
from torch.utils import _pytree as pytree

from tpu_export.converters.stablehlo.errors import UnsupportedOptionError
from tpu_export.converters.stablehlo.registry import Own
from tpu_export.runtime.errors import counted

WRAPPER = torch.ops.higher_order.auto_functionalized_v2


def called_op(node: Node) -> Any:
    """Return the op whose rule computes the node: of a wrapper, what it wraps."""
    return node.args[0] if node.target is WRAPPER else node.target


def on_bases(node: Node, own: Own) -> Own:
    """Return the rule as one of the node: of a wrapper, in terms of bases.

    The user's rule of an op that writes returns the op's results, then the new value of each
    argument that it writes to, in the order of the schema.
    """
    if node.target is not WRAPPER:
        return own
    bases: Any = node.kwargs["_all_bases"]
    dense = [base.meta["val"].is_contiguous() for base in bases]
    return replace(own, rule=_wrapped(own.rule, dense))


def _wrapped(rule: Callable[..., Any], dense: Sequence[bool]) -> Callable[..., Any]:
    def call(op: OpOverload, /, **kwargs: Any) -> tuple[Any, ...]:
        bases = list(kwargs["_all_bases"])
        written = {
            argument.name: _region(op, argument.name, kwargs, dense)
            for argument in op._schema.arguments
            if argument.alias_info is not None and argument.alias_info.is_write
        }
        views = {
            name: region and region.read(bases[region.place])
            for name, region in written.items()
        }
        positional, named = _arguments(op, {**kwargs, **views})
        given = rule(*positional, **named)
        results, news = _split(op, given, [n for n, r in written.items() if r])
        for region, new in zip(filter(None, written.values()), news, strict=True):
            bases[region.place] = region.write(bases[region.place], new)
        return (*(results or (None,)), *bases)

    return call


def _arguments(
    op: OpOverload, known: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return what a call of the op itself would pass: by place, and by name."""
    values = [(a, known.get(a.name, a.default_value)) for a in op._schema.arguments]
    positional = [value for a, value in values if not a.kwarg_only]
    return positional, {a.name: value for a, value in values if a.kwarg_only}


@dataclass(frozen=True)
class _Region:
    """The part of a base that an argument is."""

    place: int
    read: Callable[[Array], Array] = lambda base: base
    write: Callable[[Array, Array], Array] = lambda base, new: new


def _region(
    op: OpOverload, name: str, kwargs: Mapping[str, Any], dense: Sequence[bool]
) -> _Region | None:
    """Return where an argument that is written to lies; None where the call gave None."""
    if f"_{name}_length" in kwargs:
        raise UnsupportedOptionError(
            f"{op} writes to the list of tensors {name!r}",
            hint="give the op a parameter for each tensor",
        )
    place = kwargs[f"_{name}_base_index"]
    if place is None:
        return None
    if f"_{name}_slice_dim" in kwargs:
        return _slice(place, *(kwargs[f"_{name}_slice_{k}"] for k in _SLICE))
    if f"_{name}_size" not in kwargs:
        return _Region(place)
    view = [kwargs[f"_{name}_{k}"] for k in ("size", "stride", "storage_offset")]
    if not dense[place] or not all(
        isinstance(x, int) for x in pytree.tree_leaves(view)
    ):
        raise UnsupportedOptionError(
            f"{op} writes to {name!r}, a view of a tensor with gaps or of dynamic size",
            hint="give it a tensor of its own (x.clone()), and copy the result back",
        )
    return _strided(place, *view)


_SLICE = ("dim", "start", "end")


def _slice(place: int, dim: int, start: Any, end: Any) -> _Region:
    return _Region(
        place,
        lambda base: lax.slice_in_dim(base, start, end, axis=dim),
        lambda base, new: lax.dynamic_update_slice_in_dim(base, new, start, axis=dim),
    )


def _strided(
    place: int, size: Sequence[int], stride: Sequence[int], offset: int
) -> _Region:
    """Return a view of a base without gaps, by the places of its elements."""
    axes = [np.arange(n) * step for n, step in zip(size, stride, strict=True)]
    places = sum(np.ix_(*axes), np.asarray(offset))
    return _Region(
        place,
        lambda base: base.reshape(-1)[places],
        lambda base, new: base.reshape(-1).at[places].set(new).reshape(base.shape),
    )


def _split(
    op: OpOverload, given: Any, names: Sequence[str]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return results and new values of what a rule gave."""
    values = tuple(given) if isinstance(given, list | tuple) else (given,)
    count = len(op._schema.returns)
    if len(values) != count + len(names):
        message = (
            f"it gave {counted(len(values), 'value')}; {op} has "
            f"{counted(count, 'result')} and writes to "
            f"{', '.join(names)}: give the results, then the new values"
        )
        raise ValueError(message)
    return values[:count], tuple(map(jnp.asarray, values[count:]))

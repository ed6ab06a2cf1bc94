"""What a graph proves about its attentions, before any array exists.

Exported models build masks from aranges, comparisons and broadcasts, and repeat keys and
values for each group of query heads. Much of it is constant: a causal mask lets every row
see something, a padding mask that was expanded over the queries says the same for each of
them, and a repeated head is one head. Attention that knows need not guard each row of its
result nor multiply copies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Graph, Node

from tpu_export.converters.stablehlo.in_place import is_in_place

aten = torch.ops.aten

ATTENTION = aten.scaled_dot_product_attention.default
_BOTH = {aten.__and__.Tensor, aten.bitwise_and.Tensor, aten.logical_and.default}
_RESHAPES = {aten.reshape.default, aten.view.default, aten._unsafe_view.default}
_TENSORS = ("query", "key", "value", "attn_mask")  # in the order of the schema
_MATRIX_UNIT = 128  # rows
_LARGEST = 2**24  # elements of a mask that is worth evaluating


@dataclass(frozen=True)
class AttentionCall:
    """Arguments that mean the same as those that attention was given.

    Attributes:
        args: positional arguments; nodes stand for values.
        kwargs: keyword arguments.
        every_row_sees: the mask hides no row of scores as a whole.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    every_row_sees: bool


@dataclass(frozen=True)
class _Mask:
    node: Node | None  # None: everything is visible
    every_row_sees: bool


def attention_calls(graph: Graph) -> dict[Node, AttentionCall]:
    """Return each attention of a graph with simpler arguments."""
    if any(is_in_place(node.target) for node in graph.nodes):
        return {}  # a value may change between where it is made and where it is read
    known: dict[Node, torch.Tensor | None] = {}
    return {
        node: _simpler(node, known)
        for node in graph.nodes
        if node.target is ATTENTION and len(node.args) >= 3
    }


def _simpler(node: Node, known: dict[Node, torch.Tensor | None]) -> AttentionCall:
    named = dict(zip(_TENSORS, node.args, strict=False))
    rest, kwargs = node.args[len(named) :], dict(node.kwargs)
    given = named.pop("attn_mask", kwargs.pop("attn_mask", None))
    mask = _simplest(given, known) if isinstance(given, Node) else _Mask(None, False)
    q, k, v = (named[name] for name in _TENSORS[:3])
    heads = [_unrepeated(t) for t in (k, v)]
    if not kwargs.get("enable_gqa") and all(heads) and _few_rows(q):
        (k, v), kwargs["enable_gqa"] = heads, True
    return AttentionCall((q, k, v, mask.node, *rest), kwargs, mask.every_row_sees)


def _few_rows(q: Any) -> bool:
    """Say whether a group of heads gains by sharing a product.

    With more rows than the matrix unit has, each head fills it, and libtpu's own attention
    kernel takes the repeated heads (a Llama of 512 tokens: 7 % fewer estimated cycles).
    """
    rows = _shape(q)[-2]
    return isinstance(rows, int) and rows < _MATRIX_UNIT


def _unrepeated(node: Any) -> Node | None:
    """Return [B, H, L, E] from reshape(expand(unsqueeze(it, 2))), which repeats heads."""
    if node.target not in _RESHAPES:
        return None
    expand = node.args[0]
    if expand.target is not aten.expand.default:
        return None
    unsqueeze = expand.args[0]
    if unsqueeze.target is not aten.unsqueeze.default:
        return None
    source = unsqueeze.args[0]
    batch, heads, *rest = _shape(source)
    repeats = _shape(expand)[2] if len(_shape(expand)) == 5 else 0
    wanted = (
        [batch, heads, 1, *rest],
        [batch, heads, repeats, *rest],
        [batch, heads * repeats, *rest],
    )
    same = (_shape(n) for n in (unsqueeze, expand, node))
    return source if [*map(str, same)] == [*map(str, wanted)] else None


def _shape(node: Node) -> list[Any]:
    return list(node.meta["val"].shape)


def _simplest(mask: Node, known: dict[Node, torch.Tensor | None]) -> _Mask:
    value = _constant(mask, known)
    if value is not None and value.dtype == torch.bool:
        if value.all():
            return _Mask(None, every_row_sees=True)
        return _Mask(mask, every_row_sees=bool(value.any(-1).all()))
    if mask.target is aten.expand.default:
        return _simplest(mask.args[0], known)  # type: ignore[arg-type]  # a tensor
    if mask.target in _BOTH:
        for one, other in (mask.args, mask.args[::-1]):
            value = _constant(one, known)
            if value is not None and value.dtype == torch.bool and value.all():
                return _simplest(other, known)  # type: ignore[arg-type]  # a tensor
    return _Mask(mask, every_row_sees=False)


def _constant(node: Any, known: dict[Node, torch.Tensor | None]) -> torch.Tensor | None:
    """Return the value of a node that depends on no input; None when it does."""
    if not isinstance(node, Node):
        return None
    if node not in known:
        known[node] = None
        if isinstance(node.target, OpOverload) and _small(node):
            known[node] = _evaluated(node, known)
    return known[node]


def _evaluated(
    node: Node, known: dict[Node, torch.Tensor | None]
) -> torch.Tensor | None:
    assert isinstance(node.target, OpOverload)
    if torch.Tag.nondeterministic_seeded in node.target.tags:
        return None
    if any(_constant(x, known) is None for x in node.all_input_nodes):
        return None
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), known.__getitem__)
    value = node.target(*args, **kwargs)
    return value if isinstance(value, torch.Tensor) else None


def _small(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and (
        all(isinstance(size, int) for size in value.shape)
        and math.prod(value.shape) <= _LARGEST
    )

"""One ATen node as a graph of simpler ops, by torch's own tables, on demand."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, decomposition_table
from torch._guards import detect_fake_mode
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

_CORE = core_aten_decompositions()
_CACHE: dict[object, Decomposed | None] = {}


@dataclass(frozen=True)
class Decomposed:
    """A functional graph for one node.

    Attributes:
        graph: takes the leaves of the node's (args, kwargs) at `positions`.
        positions: which leaves of (args, kwargs) are its inputs.
        fixed: torch took a dynamic size for the number that it is in the example.
    """

    graph: torch.fx.GraphModule
    positions: tuple[int, ...]
    fixed: bool = False


def decompose(node: torch.fx.Node, known: Collection[object]) -> Decomposed | None:
    """Return the node's decomposition into other ops, or None when torch has none.

    Args:
        node: of an exported graph; fake values are in meta["val"].
        known: ops that stay as they are, because they have a rule.
    """
    op = node.target
    if not isinstance(op, OpOverload):
        return None
    args, kwargs = torch.fx.node.map_arg(
        (node.args, node.kwargs), lambda n: n.meta["val"]
    )
    leaves, spec = pytree.tree_flatten((args, kwargs))
    key = (op, str(spec), tuple(map(_key, leaves)), frozenset(known))
    if key not in _CACHE:
        _CACHE[key] = _decompose(op, leaves, spec, known)
    return _CACHE[key]


def _key(leaf: object) -> object:
    if isinstance(leaf, torch.Tensor):
        return (tuple(map(str, leaf.shape)), leaf.dtype)
    return (type(leaf).__name__, str(leaf))


def _decompose(
    op: OpOverload, leaves: list[Any], spec: Any, known: Collection[object]
) -> Decomposed | None:
    positions = tuple(
        i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor | torch.SymInt)
    )
    table = _table(op, known)

    def call(*inputs: Any) -> Any:
        own = list(leaves)
        for i, value in zip(positions, inputs, strict=True):
            own[i] = value
        args, kwargs = pytree.tree_unflatten(own, spec)
        result = table.get(op, op)(*args, **kwargs)
        if result is NotImplemented:
            result = op(*args, **kwargs)
        return tuple(result) if isinstance(result, tuple | list) else result

    inputs = [leaves[i] for i in positions]
    before = _fixed_sizes(inputs)
    try:
        graph = trace(call, inputs, table)
    except (NotImplementedError, RuntimeError, TypeError, AssertionError):
        return None  # torch's tables have nothing for it
    stuck = any(node.target is op for node in graph.graph.nodes)
    fixed = _fixed_sizes(inputs) != before
    return None if stuck else Decomposed(graph, positions, fixed)


def _fixed_sizes(inputs: Sequence[Any]) -> frozenset[str]:
    """Return the symbols of which torch knows the number by now."""
    mode = detect_fake_mode([x for x in inputs if isinstance(x, torch.Tensor)])
    known = mode.shape_env.replacements if mode and mode.shape_env else {}
    return frozenset(str(s) for s, size in known.items() if size.is_number)


def _table(
    op: OpOverload, known: Collection[object]
) -> Mapping[OpOverload, Callable[..., Any]]:
    table = {o: rule for o, rule in _CORE.items() if o not in known and o is not op}
    for source in (_CORE, decomposition_table):
        if op in source:
            table[op] = source[op]
            break
    return table


def trace(
    call: Callable[..., Any], inputs: Sequence[Any], table: Mapping[Any, Any]
) -> torch.fx.GraphModule:
    """Return the graph of a call on fake tensors; `table` says what to decompose, and how."""
    tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
    mode = detect_fake_mode(tensors) or FakeTensorMode()
    with torch.no_grad(), mode, _plain_kernels():
        graph = make_fx(call, decomposition_table=dict(table), tracing_mode="real")(
            *inputs
        )
        if _mutates(graph):
            functional = torch.func.functionalize(graph, remove="mutations")
            graph = make_fx(functional, tracing_mode="real")(*inputs)
    graph.graph.eliminate_dead_code()
    return graph


@contextmanager
def _plain_kernels() -> Iterator[None]:
    """Keep composite ops from choosing kernels of this host's math library."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "TF32 acceleration")
        with torch.backends.mkldnn.flags(enabled=False):
            yield


def _mutates(graph: torch.fx.GraphModule) -> bool:
    return any(
        isinstance(node.target, OpOverload) and node.target._schema.is_mutable
        for node in graph.graph.nodes
    )

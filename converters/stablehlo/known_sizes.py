"""Sizes that stored tensors decide: x[:, self.mask], nonzero(self.mask), self.count.item().

torch.export takes them for unknown. Where no call writes to such a tensor, what it decides
is a number, and the tensor a constant of the graph.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from tpu_export.converters.stablehlo.graph_copy import changed, with_constants
from tpu_export.converters.stablehlo.known_values import KnownValues

aten = torch.ops.aten
_READS = frozenset({aten.index.Tensor, aten._unsafe_index.Tensor})
_PUTS = frozenset({aten.index_put.default, aten.index_put_.default})
_MASKS = (torch.bool, torch.uint8)
_DECIDED = frozenset({torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output})
_UNTAGGED = frozenset(
    {
        aten.where.default,
        aten.nonzero_numpy.default,
        aten.argwhere.default,
        aten.repeat_interleave.self_Tensor,
    }
)
_SELECT = aten.masked_select.default


@dataclass
class _Plan:
    """What to put in the place of nodes whose sizes are known.

    Attributes:
        folded: a node by name -> the tensors or numbers that it gives.
        places: a node by name -> the places its masks select, by position.
        counts: a node by name -> how many rows repeat_interleave gives.
    """

    folded: dict[str, Any] = field(default_factory=dict)
    places: dict[str, dict[int, tuple[torch.Tensor, ...]]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def constants(self) -> dict[str, torch.Tensor]:
        """Return the tensors that the new graph takes, by name."""
        return {
            f"{name}_known_{i}": tensor
            for name, given in (*self.folded.items(), *self.places.items())
            for i, tensor in enumerate(_tensors(given))
        }


def _tensors(given: Any) -> list[torch.Tensor]:
    return [x for x in pytree.tree_leaves(given) if isinstance(x, torch.Tensor)]


def settle_sizes(program: ExportedProgram) -> ExportedProgram:
    """Return the program with sizes that stored tensors decide as numbers."""
    if not any(_deciding(node) for node in program.graph.nodes):
        return program
    plan = _planned(program)
    if not (plan.folded or plan.places or plan.counts):
        return program
    constants = plan.constants()
    program = with_constants(program, constants)
    return changed(program, lambda module: _rewrite(module, plan, list(constants)))


def _deciding(node: Node) -> bool:
    """Whether a size of the result comes from the values of an operand."""
    if not isinstance(node.target, OpOverload):
        return False
    if node.target in _READS:  # which torch says of places, too
        return bool(_masks(node))
    if node.target in _UNTAGGED or _DECIDED.intersection(node.target.tags):
        return True
    return bool(_masks(node))


def _masks(node: Node) -> dict[int, Node]:
    """Return the masks among the indices of a node, by position."""
    if node.target not in _READS | _PUTS:
        return {}
    if node.target in _PUTS and _rank(node.args[2]) == 0:
        return {}  # a number goes everywhere: no size matters
    indices: Any = node.args[1]
    return {
        i: index
        for i, index in enumerate(indices)
        if isinstance(index, Node) and index.meta["val"].dtype in _MASKS
    }


def _rank(value: Any) -> int:
    return value.meta["val"].dim() if isinstance(value, Node) else 0


def _planned(program: ExportedProgram) -> _Plan:
    known, plan = KnownValues(program), _Plan()
    for node in filter(_deciding, program.graph.nodes):
        masks = {i: known.of(mask) for i, mask in _masks(node).items()}
        if any(mask is not None for mask in masks.values()):
            plan.places[node.name] = {
                i: mask.nonzero(as_tuple=True)
                for i, mask in masks.items()
                if mask is not None
            }
        elif node.target is _SELECT:
            if selected := _selected(node, known.of(node.args[1])):
                plan.places[node.name] = selected
        elif node.target is aten.repeat_interleave.self_Tensor:
            count = _repeated(node, known.of(node.args[1]))
            if count is not None:
                plan.counts[node.name] = count
        elif not masks and known.of(node) is not None:
            plan.folded[node.name] = known.of(node)
    return plan


def _rewrite(module: GraphModule, plan: _Plan, names: Sequence[str]) -> None:
    placeholders = {n.name: n for n in module.graph.nodes if n.op == "placeholder"}
    constants = {name: placeholders[name] for name in names}
    sizes: dict[sympy.Symbol, sympy.Integer] = {}
    for node in list(module.graph.nodes):
        if "val" not in node.meta:
            continue
        name = node.name
        mine = iter([c for n, c in constants.items() if n.startswith(f"{name}_known_")])
        if name in plan.places:
            _select(node, plan.places[name], mine)
        elif name in plan.counts:
            node.kwargs = {**node.kwargs, "output_size": plan.counts[name]}
        if name in plan.places or name in plan.counts:
            _learn(node, _again(node), sizes)
        elif name in plan.folded:
            _learn(node, plan.folded[name], sizes)
            _fold(node, plan.folded[name], mine)
        node.meta["val"] = pytree.tree_map(
            lambda x: _settled(x, sizes), node.meta["val"]
        )


def _select(
    node: Node, places: Mapping[int, Sequence[torch.Tensor]], constants: Any
) -> None:
    """Put places where masks were."""
    if node.target is _SELECT:
        _select_flat(node, list(constants))
        return
    indices: list[Any] = []
    old: Any = node.args[1]
    for i, index in enumerate(old):
        indices += [next(constants) for _ in places[i]] if i in places else [index]
    node.args = (node.args[0], indices, *node.args[2:])


def _select_flat(node: Node, constants: Sequence[Node]) -> None:
    """Put places where the mask of masked_select was, of the broadcast tensor."""
    x, mask = node.all_input_nodes
    shape = torch.broadcast_shapes(x.meta["val"].shape, mask.meta["val"].shape)
    with node.graph.inserting_before(node):
        wide = node.graph.call_function(aten.expand.default, (x, list(shape)))
    wide.meta = {**node.meta, "val": x.meta["val"].expand(shape)}
    node.target, node.args = aten.index.Tensor, (wide, constants)


def _again(node: Node) -> Any:
    """Return what torch's fake tensors say of a node now."""
    args, kwargs = map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    op: Any = node.target
    if node.target in _PUTS:
        return node.meta["val"]
    with torch.no_grad():
        return op(*args, **kwargs)


def _selected(
    node: Node, mask: torch.Tensor | None
) -> dict[int, tuple[torch.Tensor, ...]]:
    shapes = [x.meta["val"].shape for x in node.all_input_nodes]
    shape = torch.broadcast_shapes(*shapes)
    if mask is None or not all(isinstance(n, int) for n in shape):
        return {}  # as many as a dynamic size has times the mask's
    return {0: mask.expand(shape).nonzero(as_tuple=True)}


def _repeated(node: Node, repeats: torch.Tensor | None) -> int | None:
    """Return how many rows repeat_interleave gives; one count is for each row."""
    if repeats is None or repeats.numel() != 1:
        return None if repeats is None else int(repeats.sum())
    x, _, dim = (*node.args, None)[:3]
    shape: Any = x.meta["val"].shape  # type: ignore[union-attr]  # a node, by the schema
    rows = math.prod(shape) if dim is None else shape[dim]
    return rows * int(repeats) if isinstance(rows, int) else None


def _learn(node: Node, value: Any, sizes: dict[sympy.Symbol, sympy.Integer]) -> None:
    """Note which number each unknown size of a node is."""
    for symbol, path in (node.meta.pop("unbacked_bindings", None) or {}).items():
        sizes[symbol] = sympy.Integer(int(pytree.key_get(value, path)))


def _fold(node: Node, value: Any, constants: Any) -> None:
    """Give the users of a node its value; a number stays a node where it is a result."""
    users = [u for u in node.users if u.op != "output"]
    if isinstance(value, list | tuple):
        given = list(constants)
        for user in users:
            place: Any = user.args[1]
            user.replace_all_uses_with(given[place])
            user.graph.erase_node(user)
    elif isinstance(value, torch.Tensor):
        node.replace_all_uses_with(next(constants))
    else:
        for user in users:
            user.args, user.kwargs = map_arg(
                (user.args, user.kwargs), lambda n: value if n is node else n
            )
    if not node.users:
        node.graph.erase_node(node)


def _settled(value: Any, sizes: Mapping[sympy.Symbol, sympy.Integer]) -> Any:
    """Return a fake value with known sizes as numbers."""
    if isinstance(value, torch.SymInt | torch.SymBool | torch.SymFloat):
        return _number(value, sizes)
    if not isinstance(value, FakeTensor) or not sizes:
        return value
    shape = [_number(n, sizes) for n in value.shape]
    if all(a is b for a, b in zip(shape, value.shape, strict=True)):
        return value
    strides = [_number(n, sizes) for n in value.stride()]
    with value.fake_mode:
        return torch.empty_strided(
            shape, strides, dtype=value.dtype, device=value.device
        )


def _number(size: Any, sizes: Mapping[sympy.Symbol, sympy.Integer]) -> Any:
    if not isinstance(size, torch.SymInt | torch.SymBool | torch.SymFloat):
        return size
    old = size.node.expr
    new = old.xreplace(dict(sizes))
    if new == old:
        return size
    if new.is_Boolean:
        return bool(new) if new in (sympy.true, sympy.false) else size
    if new.is_Integer:
        return int(new)
    return size.node.shape_env.create_symintnode(new, hint=None)

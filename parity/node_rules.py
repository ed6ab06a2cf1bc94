"""One node of a graph through our rules, on the arrays that torch gave its inputs.

It is compiled as an artifact's program is: run op by op, XLA:CPU would use its defaults, whose
reductions race.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import jax
import numpy as np
import torch
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from tpu_export.converters.stablehlo import context
from tpu_export.converters.stablehlo.arrays import as_numpy
from tpu_export.converters.stablehlo.chosen import Chosen
from tpu_export.converters.stablehlo.counted import shape_symbols
from tpu_export.converters.stablehlo.counting import Counting
from tpu_export.converters.stablehlo.errors import UnsupportedOptionError
from tpu_export.converters.stablehlo.in_place import is_in_place
from tpu_export.converters.stablehlo.interpreter import Facts, Interpreter
from tpu_export.converters.stablehlo.platforms import interpreted, resolved
from tpu_export.converters.stablehlo.registry import Platform
from tpu_export.runtime.devices import choose_device
from tpu_export.runtime.executables import Flat, compile_portable

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
_NUMBERS: dict[type, str] = {bool: "bool", int: "int64", float: "float64"}


@dataclass(frozen=True)
class Outcome:
    """What our rules made of one node.

    Attributes:
        leaves: arrays, and numbers that are known before a call (sizes), in leaf order.
        drew: random numbers are in it.
        open: its size depends on the data; the node that reads it computes both.
        miscounted: sizes that the data decides: ours, and torch's, where they differ.
    """

    leaves: tuple[Any, ...] = ()
    drew: bool = False
    open: bool = False
    miscounted: tuple[tuple[int, int], ...] = ()


_ARRAY = object()  # stands for an array that the compiled program gives


@dataclass
class _Traced:
    """What tracing a node tells beside the program."""

    drew: bool = False
    open: bool = False
    leaves: tuple[Any, ...] = ()
    sizes: tuple[int, ...] = ()  # torch's, of the counts after the leaves

    def outcome(self, results: Sequence[Any]) -> Outcome:
        """Return the leaves with what was computed."""
        feed = iter(results)
        leaves = [np.asarray(next(feed)) if x is _ARRAY else x for x in self.leaves]
        counts = [(int(next(feed)), size) for size in self.sizes]
        wrong = tuple(pair for pair in counts if pair[0] != pair[1])
        return Outcome(tuple(leaves), self.drew, miscounted=wrong)


@dataclass
class NodeRules:
    """Runs nodes of one graph.

    Attributes:
        interpreter: of the target, knowing the graph's rebound names.
        module: the graph.
        platform: whose program: "tpu" has the user's kernels, in Pallas's interpreter.
    """

    interpreter: Interpreter
    module: GraphModule
    platform: Platform = "cpu"
    _facts: Facts = field(init=False)
    _counted: set[str] = field(init=False)  # sizes that the data decides, by symbol
    _data: set[Node] = field(default_factory=set)  # numbers that the data decides
    _sizes: dict[str, int] = field(default_factory=dict)  # by torch's symbol
    _open: dict[Node, list[Node]] = field(default_factory=dict)
    _compiled: dict[object, tuple[_Traced, Flat | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph = self.module.graph
        self._facts = Facts.of(graph)
        self._counted = {str(s) for node in graph.nodes for s in shape_symbols(node)}

    def repeats(self, node: Node) -> bool:
        """Whether an earlier node computed the same."""
        return node in self._facts.repeated

    def note(self, node: Node, result: Any, outcome: Outcome | None) -> None:
        """Remember numbers that the data decides: lowering has arrays for them."""
        if not isinstance(result, int | float):
            return
        if outcome is None:
            from_data = bool(self._data.intersection(node.all_input_nodes))
        else:
            from_data = any(isinstance(x, np.ndarray) for x in outcome.leaves)
        if from_data:
            self._data.add(node)

    def learn(self, node: Node, result: Any) -> None:
        """Remember the sizes that a node decides, as torch has them."""
        for symbol, path in (node.meta.get("unbacked_bindings") or {}).items():
            if str(symbol) in self._counted:
                self._sizes[str(symbol)] = int(pytree.key_get(result, path))

    def run(self, node: Node, env: Mapping[Node, Any]) -> Outcome:
        """Compute a node from what torch has for its inputs.

        Lowering counts sizes that the data decides where it must; here they are torch's,
        and what lowering counts is compared with them.

        Raises:
            TpuExportError: of lowering: a rule is wrong, raises, or refuses.
        """
        nodes = self._with_open(node)
        counts = self.interpreter.target == "xla" and bool(self._sizes)
        first = None
        try:
            found = self._run(node, nodes, env, None)
            returned = any(user.op == "output" for user in node.users)
            if not (counts and found.open and returned):
                return found
        except UnsupportedOptionError as error:
            if not counts:
                raise
            first = error
        try:
            return self._run(node, nodes, env, Counting(dict(self._sizes)))
        except UnsupportedOptionError as error:
            raise (first or error) from error  # its words are about the data

    def _run(
        self,
        node: Node,
        nodes: Sequence[Node],
        env: Mapping[Node, Any],
        counting: Counting | None,
    ) -> Outcome:
        with jax.enable_x64(True):
            sources = self._sources(nodes)
            values = {s: self._value(s, env, counting) for s in sources}
            leaves = pytree.tree_leaves(values)
            arrays = [x for x in leaves if isinstance(x, np.ndarray)]
            key = None if counting else self._key(node, nodes, values)
            found = self._compiled.get(key) or self._compile(
                nodes, values, arrays, counting
            )
            if key is not None:
                self._compiled[key] = found
            traced, run = found
            if run is None:
                self._open[node] = list(nodes)
                return Outcome(open=True)
            return traced.outcome(run(arrays))

    def _with_open(self, node: Node) -> list[Node]:
        """Return the node after those whose results it takes open, in the graph's order."""
        wanted = {node}
        for source in self._inputs(node):
            wanted.update(self._open.get(source, ()))
        return [n for n in self.module.graph.nodes if n in wanted]

    def _inputs(self, node: Node) -> list[Node]:
        call = self._facts.simpler.get(node) or node
        found = [
            x
            for x in pytree.tree_leaves((call.args, call.kwargs))
            if isinstance(x, Node)
        ]
        return list(dict.fromkeys(found))

    def _sources(self, nodes: Sequence[Node]) -> list[Node]:
        found = [s for n in nodes for s in self._inputs(n) if s not in nodes]
        canonical = [self._facts.repeated.get(s, s) for s in found]
        return list(dict.fromkeys([*found, *canonical]))

    def _value(
        self, source: Node, env: Mapping[Node, Any], counting: Counting | None
    ) -> Any:
        """Return numpy arrays where lowering has tracers, else what lowering has."""
        if source.op == "get_attr":
            return self.interpreter.attribute(self.module, str(source.target))
        number = source in self._data and not (counting and self._is_size(source))
        return pytree.tree_map(lambda x: self._leaf(x, number), env[source])

    def _is_size(self, source: Node) -> bool:
        """Whether a number is made of sizes that lowering counts."""
        value = source.meta.get("val")
        symbols = free_unbacked_symbols(value) if value is not None else ()
        return {str(s) for s in symbols} <= self._sizes.keys()

    def _leaf(self, x: Any, number: bool) -> Any:
        if isinstance(x, torch.Tensor):
            return as_numpy(x)
        if number:
            return np.asarray(x, _NUMBERS[type(x)])
        return x

    def _key(
        self, node: Node, nodes: Sequence[Node], values: Mapping[Node, Any]
    ) -> object:
        """Return what equal nodes have in common; None where a constant is in it."""
        constant = any(s.op == "get_attr" for s in values)
        if constant or len(nodes) > 1 or node in self._facts.simpler:
            return None
        places = {source: i for i, source in enumerate(values)}
        call = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: places[n])
        described = pytree.tree_map_only(
            np.ndarray, lambda a: (a.shape, a.dtype), list(values.values())
        )
        return (node.target, repr(call), repr(described))

    def _compile(
        self,
        nodes: Sequence[Node],
        values: Mapping[Node, Any],
        arrays: Sequence[Array],
        counting: Counting | None,
    ) -> tuple[_Traced, Flat | None]:
        traced = _Traced()
        shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays]
        function = self._function(nodes, values, traced, counting)
        closed = jax.make_jaxpr(function)(*shapes)
        if traced.open:
            return traced, None
        closed = self._for_platform(closed)
        device = choose_device("cpu")
        return traced, compile_portable(jaxpr_as_fun(closed), shapes, device, ())

    def _for_platform(self, closed: ClosedJaxpr) -> ClosedJaxpr:
        chosen = resolved(closed, self.platform)
        return interpreted(chosen) if self.platform == "tpu" else chosen

    def _function(
        self,
        nodes: Sequence[Node],
        values: Mapping[Node, Any],
        traced: _Traced,
        counting: Counting | None,
    ) -> Callable[..., Any]:
        leaves, spec = pytree.tree_flatten(dict(values))
        interpreter = replace(self.interpreter, counting=counting)
        same = interpreter.same

        def function(*tracers: Any) -> list[Any]:
            feed = iter(tracers)
            own = [next(feed) if isinstance(x, np.ndarray) else x for x in leaves]
            given = pytree.tree_unflatten(own, spec)
            state: dict[Node, Any] = {}
            for source in given:
                kept = self._facts.repeated.get(source, source)
                state[same.get(source, source)] = given[kept]
            with context.lowering(
                context.LoweringContext(interpreter.target)
            ) as current:
                for node in nodes:
                    interpreter.step(node, state, self._facts)
                traced.drew = current.drew
            last = nodes[-1]
            owner = same.get(last, last) if is_in_place(last.target) else last
            results = pytree.tree_leaves(state[owner])
            arrays = [x for x in results if isinstance(x, jax.Array)]
            traced.open = any(isinstance(x, Chosen) for x in results)
            traced.leaves = tuple(
                _ARRAY if isinstance(x, jax.Array) else x for x in results
            )
            counts = counting.counts if counting else {}
            traced.sizes = tuple(self._sizes[s] for s in counts)
            return [*arrays, *counts.values()]

        return function

"""Run an exported graph node by node on JAX arrays, traced or concrete."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.errors import InconclusiveDimensionOperation
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import Graph, GraphModule, Node
from torch.utils import _pytree as pytree

from tpu_export.converters.stablehlo import context
from tpu_export.converters.stablehlo.attention_facts import (
    AttentionCall,
    attention_calls,
)
from tpu_export.converters.stablehlo.chosen import (
    cast,
    check_outputs,
    chosen,
    repeated_masks,
)
from tpu_export.converters.stablehlo.claims import equalities
from tpu_export.converters.stablehlo.counting import Counting
from tpu_export.converters.stablehlo.decompose import decompose
from tpu_export.converters.stablehlo.in_place import functional_twin, is_in_place
from tpu_export.converters.stablehlo.location import scope
from tpu_export.converters.stablehlo.mutating import called_op, on_bases
from tpu_export.converters.stablehlo.operands import DTYPES
from tpu_export.converters.stablehlo.ops import find_rule, registered_ops
from tpu_export.converters.stablehlo.platforms import by_platform
from tpu_export.converters.stablehlo.refusals import refusal
from tpu_export.converters.stablehlo.registry import (
    Rule,
    Target,
    find_own,
    find_variants,
)
from tpu_export.converters.stablehlo.results import (
    OwnRuleRaisedError,
    check,
    guarded,
)
from tpu_export.converters.stablehlo.shapes import PYTHON_OPS
from tpu_export.runtime.errors import TpuExportError

aten = torch.ops.aten

# They carry facts for torch, not work: lowering proves shapes itself.
FACTS = frozenset(
    op
    for name in (
        "_assert_tensor_metadata",
        "_assert_scalar",
        "_assert_async",
        "sym_constrain_range",
        "sym_constrain_range_for_size",
    )
    for packet in [getattr(aten, name)]
    for overload in packet.overloads()
    for op in [getattr(packet, overload)]
)


@dataclass(frozen=True)
class Facts:
    """What a graph as a whole says about its nodes.

    Attributes:
        simpler: arguments for an attention that mean the same.
        repeated: masks that an earlier node computed.
    """

    simpler: Mapping[Node, AttentionCall]
    repeated: Mapping[Node, Node]

    @classmethod
    def of(cls, graph: Graph) -> Facts:
        """Look at every node of a graph."""
        return cls(attention_calls(graph), repeated_masks(graph))


@dataclass(frozen=True)
class Interpreter:
    """Interprets graphs for one target.

    Attributes:
        target: which rules apply.
        model_file: source lines are relative to its folder.
        same: node -> the node whose tensor it is (functional.py).
        inner: the graph is the decomposition of one node, which errors are about.
        counting: the sizes that the data decides; None where it may decide none.
        equal: filled where a rule failed: claims on sizes that may help it.
    """

    target: Target
    model_file: Path | None = None
    same: Mapping[Node, Node] = field(default_factory=dict)
    inner: bool = False
    counting: Counting | None = None
    equal: set[str] = field(default_factory=set)

    def run(
        self, module: GraphModule, inputs: Sequence[Any]
    ) -> tuple[Any, dict[Node, Any]]:
        """Return the graph's output, and the final value of every node.

        Args:
            module: the graph and its attributes.
            inputs: a value for each placeholder, in order.
        """
        values: dict[Node, Any] = {}
        feed = iter(inputs)
        facts = Facts.of(module.graph)
        for node in module.graph.nodes:
            match node.op:
                case "placeholder":
                    values[node] = next(feed)
                case "get_attr":
                    values[node] = self.attribute(module, str(node.target))
                case "output":
                    output = self._look(node.args[0], values)
                    check_outputs(output)
                    return output, values
                case _:
                    self.step(node, values, facts)
        message = "a graph without an output"
        raise AssertionError(message)

    def step(self, node: Node, values: dict[Node, Any], facts: Facts) -> None:
        """Run one call: its value, and what it writes to, go into `values`."""
        if node in facts.repeated:
            values[node] = values[facts.repeated[node]]
        else:
            self._explained(node, values, facts.simpler.get(node))

    def _look(self, arguments: Any, values: Mapping[Node, Any]) -> Any:
        return torch.fx.node.map_arg(arguments, lambda n: values[self.same.get(n, n)])

    def attribute(self, module: GraphModule, name: str) -> Any:
        """Return what a get_attr node stands for: a constant, or a graph as a function."""
        value: Any = module
        for part in name.split("."):
            value = getattr(value, part)
        if isinstance(value, GraphModule):
            return self.subgraph(value)
        if isinstance(value, torch.Tensor):
            return constant(value)
        return value

    def subgraph(self, module: GraphModule) -> Callable[..., Any]:
        """Return a graph as a function of arrays."""
        return lambda *inputs: self.run(module, inputs)[0]

    def _explained(
        self, node: Node, values: dict[Node, Any], simpler: AttentionCall | None
    ) -> None:
        try:
            self._call(node, values, simpler)
        except (
            TpuExportError,
            OwnRuleRaisedError,
            TypeError,
            ValueError,
            NotImplementedError,
            InconclusiveDimensionOperation,
        ) as error:
            if self.inner:
                raise
            self.equal.update(equalities(values.values()))
            found = refusal(node, values, error, self.model_file)
            if found is error:
                raise
            raise found from error

    def _call(
        self, node: Node, values: dict[Node, Any], simpler: AttentionCall | None
    ) -> None:
        if node.target in FACTS:
            return
        call = simpler or node
        given = (call.args, call.kwargs)
        args, kwargs = self._look(given, values)
        if not isinstance(node.target, OpOverload | HigherOrderOperator):
            python: Any = PYTHON_OPS.get(node.target, node.target)
            values[node] = python(*args, **kwargs)
            return
        place = scope(node, self.model_file)
        context.current().scope = place
        if self.counting is not None:
            context.current().sizes = self.counting.sizes(node)
        context.current().every_row_sees = simpler is not None and (
            simpler.every_row_sees
        )
        with jax.named_scope(place):
            if self.counting is not None:
                self.counting.note(node, args, kwargs)
            result = self._result(node, args, kwargs)
        if is_in_place(node.target):
            owner = self.same[node]
            result = cast(result, values[owner].dtype)
            values[owner] = result
        else:
            values[node] = result
        check(node, result, (args, kwargs))

    def _result(self, node: Node, args: Any, kwargs: Any) -> Any:
        op = called_op(node)
        rule = self.rule(op)
        found = chosen(op, rule, args, kwargs)
        if found is not None:
            return found
        general = self._general(node, rule)
        variants = find_variants(op, self.target)
        if not variants:
            return general(*args, **kwargs)
        calls = {
            name: guarded(node, on_bases(node, own)) for name, own in variants.items()
        }
        return by_platform(general, calls, args, kwargs)

    def _general(self, node: Node, rule: Rule | None) -> Rule:
        """Return the rule that every platform can run."""
        if rule is None:
            return lambda *args, **kwargs: self._decomposed(node, args, kwargs)
        own = find_own(called_op(node), self.target)
        return rule if own is None else guarded(node, on_bases(node, own))

    def rule(self, op: Any) -> Rule | None:
        """Return the rule for an op; in-place ops use their functional twin's."""
        rule = find_rule(op, self.target)
        if rule is None and is_in_place(op):
            twin = functional_twin(op)
            return find_rule(twin, self.target) if twin is not None else None
        return rule

    def _decomposed(self, node: Node, args: Any, kwargs: Any) -> Any:
        found = decompose(node, registered_ops())
        assert found is not None, f"{node.target} passed the coverage check"
        leaves = pytree.tree_leaves((args, kwargs))
        inner = Interpreter(self.target, self.model_file, inner=True)
        with_scope = context.current().scope
        output, _ = inner.run(found.graph, [leaves[i] for i in found.positions])
        context.current().scope = with_scope
        return output


def constant(tensor: torch.Tensor) -> jax.Array:
    """Return a small constant of a graph as an array that is known while lowering."""
    with jax.ensure_compile_time_eval():
        return _constant(tensor)


def _constant(tensor: torch.Tensor) -> jax.Array:
    dense = tensor.detach().resolve_conj().resolve_neg().contiguous()
    dtype = DTYPES[tensor.dtype]
    if dtype.type.__module__ != "numpy":
        return jnp.asarray(
            dense.view(torch.int16 if dtype.itemsize == 2 else torch.uint8)
            .numpy()
            .view(dtype)
        )
    return jnp.asarray(np.array(dense.numpy()))

"""What each graph input and output of an exported program is: read by kind, never position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.fx import Node

from tpu_export.converters.stablehlo import context
from tpu_export.converters.stablehlo.functional import functionalize
from tpu_export.converters.stablehlo.interpreter import Interpreter, constant
from tpu_export.converters.stablehlo.location import scope, spoken
from tpu_export.converters.stablehlo.operands import DTYPES
from tpu_export.converters.stablehlo.shared_memory import STORED
from tpu_export.converters.stablehlo.shared_memory import stored as stored_tensor
from tpu_export.runtime.errors import TpuExportError
from tpu_export.runtime.signature import Signature, TensorSpec


class UnsupportedInputError(TpuExportError):
    """A graph input that no artifact can hold: a TorchBind object."""

    code = "TPX-0205"


# The dtypes of Python numbers among the outputs, as the signature has them.
NUMBERS = {torch.SymInt: "int64", torch.SymFloat: "float64", torch.SymBool: "bool"}


@dataclass(frozen=True)
class Bindings:
    """The graph's inputs and outputs in the order of the calling convention.

    Attributes:
        program: functional; what is interpreted.
        same: node -> the node whose tensor it is.
        weights: stored tensors that stay as they are, by name.
        state: stored tensors that a call replaces, by name: their initial values.
        mutated_inputs: user inputs that a call writes to.
    """

    program: ExportedProgram
    same: Mapping[Node, Node]
    weights: Mapping[str, torch.Tensor]
    state: Mapping[str, torch.Tensor]
    mutated_inputs: tuple[str, ...]
    _placeholders: tuple[tuple[str, Any], ...]  # ("weight", name) | ("input", None) | …
    _outputs: tuple[Node | Any, ...]
    _new_state: tuple[Node, ...]
    _new_inputs: tuple[Node, ...]

    @property
    def state_specs(self) -> tuple[TensorSpec, ...]:
        """The state slots."""
        return tuple(
            TensorSpec(name, tuple(t.shape), DTYPES[t.dtype].name)
            for name, t in self.state.items()
        )

    def placeholders(
        self, stored: Mapping[str, Any], inputs: Sequence[Any]
    ) -> list[Any]:
        """Return a value for each placeholder of the graph, in order."""
        feed = iter(inputs)
        return [
            stored[value]
            if kind == "stored"
            else next(feed)
            if kind == "input"
            else value
            for kind, value in self._placeholders
        ]

    def results(
        self,
        interpreter: Interpreter,
        weights: Sequence[Any],
        state: Sequence[Any],
        inputs: Sequence[Any],
    ) -> tuple[Any, ...]:
        """Interpret the graph: outputs, new state, new values of mutated inputs."""
        stored = dict(zip(self.weights, weights, strict=True))
        stored |= dict(zip(self.state, state, strict=True))
        if context.current().target == "litert":
            stored |= self._counters()
        given = self.placeholders(stored, inputs)
        _, values = interpreter.run(self.program.graph_module, given)

        def final(node: Any) -> Any:
            if not isinstance(node, Node):
                return jnp.asarray(node)
            value = jnp.asarray(values[self.same.get(node, node)])
            number = NUMBERS.get(type(node.meta.get("val")))  # such as of item()
            return value if number is None else value.astype(number)

        slots = zip(self._new_state, self.state.values(), strict=True)
        return (
            *map(final, self._outputs),
            *(final(node).astype(DTYPES[old.dtype]) for node, old in slots),
            *map(final, self._new_inputs),
        )

    def _counters(self) -> dict[str, Any]:
        """Return whole numbers of forward(), torch.tensor(0): they bound loops."""
        lifted = self.program.graph_signature.inputs_to_lifted_tensor_constants
        numbers = {n: self.weights[n] for n in lifted.values() if n in self.weights}
        with jax.ensure_compile_time_eval():  # arrays, not tracers
            return {
                name: constant(number)
                for name, number in numbers.items()
                if number.numel() == 1 and number.dtype in (torch.int32, torch.int64)
            }


def _no_tensor(
    program: ExportedProgram, node: Node, name: str
) -> UnsupportedInputError:
    used = ", ".join(spoken(scope(user)) for user in node.users)
    at = f" in {used}" if used else ""
    if isinstance(program.constants.get(name), torch.Generator):
        return UnsupportedInputError(
            f"the model draws from a torch.Generator{at}",
            hint="leave out generator=: an artifact draws from a seed in its state",
        )
    return UnsupportedInputError(
        f"the model holds an object ({name}) that is no tensor{at}",
        hint="keep TorchBind objects out of the exported module",
    )


def bind(program: ExportedProgram, signature: Signature) -> Bindings:
    """Match the graph's inputs and outputs with a signature."""
    functional = functionalize(program)
    program = functional.program
    specs = program.graph_signature
    nodes = [n for n in program.graph.nodes if n.op == "placeholder"]
    by_name = {n.name: n for n in program.graph.nodes}
    names = iter(spec.name for spec in signature.inputs)
    placeholders: list[tuple[str, Any]] = []
    stored: dict[str, torch.Tensor] = {}
    written = dict.fromkeys(functional.written)
    user_names: dict[Node, str] = {}
    for node, spec in zip(nodes, specs.input_specs, strict=True):
        if spec.kind in STORED:
            stored[spec.target] = stored_tensor(program, spec.target)
            placeholders.append(("stored", spec.target))
        elif spec.kind == InputKind.USER_INPUT:
            if isinstance(spec.arg, ConstantArgument):
                placeholders.append(("constant", spec.arg.value))
            else:
                user_names[node] = next(names)
                placeholders.append(("input", None))
        elif spec.kind == InputKind.TOKEN:
            placeholders.append(("constant", None))
        else:
            raise _no_tensor(program, node, str(spec.target))
    targets = {n: s.target for n, s in zip(nodes, specs.input_specs, strict=True)}
    new_state = {targets[n]: n for n in written if targets[n] is not None}
    new_inputs = {user_names[n]: n for n in written if n in user_names}
    outputs: list[Any] = []
    for spec in specs.output_specs:
        if spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION):
            new_state[spec.target] = by_name[spec.arg.name]
        elif spec.kind == OutputKind.USER_INPUT_MUTATION:
            new_inputs[user_names[by_name[spec.target]]] = by_name[spec.arg.name]
        elif spec.kind == OutputKind.USER_OUTPUT and not isinstance(
            spec.arg, ConstantArgument
        ):
            outputs.append(by_name[spec.arg.name])
    return Bindings(
        program=program,
        same=functional.same,
        weights={n: t for n, t in stored.items() if n not in new_state},
        state={n: stored[n] for n in new_state},
        mutated_inputs=tuple(new_inputs),
        _placeholders=tuple(placeholders),
        _outputs=tuple(outputs),
        _new_state=tuple(new_state.values()),
        _new_inputs=tuple(new_inputs.values()),
    )

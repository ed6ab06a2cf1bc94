"""One node as a folder: its arrays, and a model file that has this node alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import indent
from typing import Any, TypeAlias

import numpy as np
import torch
from torch._ops import OpOverload
from torch.fx import Graph, GraphModule, Node
from torch.utils import _pytree as pytree

from tpu_export.converters.stablehlo.arrays import as_numpy
from tpu_export.converters.stablehlo.in_place import is_in_place
from tpu_export.converters.stablehlo.location import scope
from tpu_export.converters.stablehlo.registry import OWN
from tpu_export.exporter.capture import Captured
from tpu_export.parity.node_walk import Checked

Arrays: TypeAlias = dict[str, Any]  # np.savez's own types take no **arrays

_SCRIPT = '''\
"""{title}

python repro.py, or tpu-export debug repro.py
"""

from pathlib import Path

import numpy as np
import torch
{imports}
FOLDER = Path(__file__).parent


def tensor(array, dtype, stride):
    bits = {{1: np.uint8, 2: np.int16}}.get(array.dtype.itemsize)
    plain = array.view(bits) if array.dtype.kind == "V" else array
    dense = torch.from_numpy(plain.copy()).view(dtype)
    return torch.empty_strided(dense.shape, stride, dtype=dtype).copy_(dense)


{model}

def get_inputs():
    data = np.load(FOLDER / "inputs.npz")
    return (
{inputs}    )


if __name__ == "__main__":
    import tpu_export

    report = tpu_export.debug(get_model(), get_inputs(), {options})
    print(report.text())
    raise SystemExit(not report.passed)
'''
_CODE = """\
class Repro(torch.nn.Module):
    def forward(self{parameters}):
{body}

def get_model():
    return Repro()
"""
_PROGRAM = """\
def get_model():
    return torch.export.load(FOLDER / "node.pt2")
"""
_OWN = """
from tpu_export.exporter.sources_python import load_module

load_module(Path({path!r}))  # ops and rules of your own
"""


def write_reproducer(
    folder: Path, captured: Captured, checked: Checked, options: Mapping[str, str]
) -> Path:
    """Write inputs.npz, outputs.npz and repro.py; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    names = _named(checked.inputs)
    inputs: Arrays = {n: as_numpy(t) for n, t in names.items()}
    np.savez(folder / "inputs.npz", **inputs)
    np.savez(folder / "outputs.npz", **_outputs(checked))
    node = checked.node
    if isinstance(node.target, OpOverload):
        model = _code(node, checked.inputs)
    else:
        model = _PROGRAM
        try:
            torch.export.save(_program(node, checked.inputs), folder / "node.pt2")
        except Exception as error:  # torch documents no set of errors
            kind = type(error).__name__
            model = f"# torch.export refuses {node.target} alone: {kind}\n"
    given = (_loaded(name, tensor) for name, tensor in names.items())
    script = _SCRIPT.format(
        title=f"{scope(node, captured.model_file)}: {checked.note or 'differs'}",
        imports=_imports(captured, node),
        model=model,
        inputs=indent("".join(given), " " * 8),
        options=", ".join(f"{k}={v!r}" for k, v in options.items()),
    )
    (folder / "repro.py").write_text(script)
    return folder


def _named(inputs: Mapping[Node, Any]) -> dict[str, torch.Tensor]:
    """Return the tensors among the inputs as x0, x1, or x1_0 and x1_1 of a list."""
    return {
        name: tensor
        for i, value in enumerate(inputs.values())
        for name, tensor in _parts(f"x{i}", value)
    }


def _parts(name: str, value: Any) -> list[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        return [(name, value)]
    if isinstance(value, list | tuple):
        return [p for j, x in enumerate(value) for p in _parts(f"{name}_{j}", x)]
    return []


def _outputs(checked: Checked) -> Arrays:
    theirs = pytree.tree_leaves(checked.expected)
    arrays = {
        f"torch.{i}": as_numpy(x)
        for i, x in enumerate(theirs)
        if isinstance(x, torch.Tensor)
    }
    ours = checked.outcome.leaves if checked.outcome else ()
    for i, x in enumerate(ours):
        if isinstance(x, np.ndarray):
            arrays[f"rule.{i}"] = x
    return arrays


def _loaded(name: str, tensor: torch.Tensor) -> str:
    overlaps = 0 in tensor.stride()
    stride = tensor.contiguous().stride() if overlaps else tensor.stride()
    return f'tensor(data["{name}"], {tensor.dtype}, {tuple(stride)}),\n'


def _imports(captured: Captured, node: Node) -> str:
    """Return what defines the user's own ops and rules, if there are any.

    The model file defines them, or what it imports does.
    """
    foreign = getattr(node.target, "namespace", "aten") not in ("aten", "higher_order")
    if captured.model_file is None or not (OWN or foreign):
        return ""
    return _OWN.format(path=str(captured.model_file))


def _code(node: Node, inputs: Mapping[Node, Any]) -> str:
    names = {n: _expression(f"x{i}", v) for i, (n, v) in enumerate(inputs.items())}
    op = node.target
    assert isinstance(op, OpOverload)
    given = [_literal(a, names) for a in node.args]
    named = [f"{k}={_literal(v, names)}" for k, v in node.kwargs.items()]
    call = f"torch.ops.{op}({', '.join([*given, *named])})"
    lines = [f"return {call}"]
    if is_in_place(op):
        kinds = (argument.alias_info for argument in op._schema.arguments)
        writes = [kind is not None and kind.is_write for kind in kinds]
        own = given[writes.index(True)]
        lines = [f"{own} = {own}.clone()", call, f"return {own}"]
    parameters = "".join(f", {name}" for name in _named(inputs))
    body = indent("\n".join(lines), " " * 8) + "\n"
    return _CODE.format(parameters=parameters, body=body)


def _expression(name: str, value: Any) -> str:
    """Return an input's value as Python: the name of a tensor, or a number."""
    if isinstance(value, torch.Tensor):
        return name
    if isinstance(value, list | tuple):
        parts = (_expression(f"{name}_{j}", x) for j, x in enumerate(value))
        return f"[{', '.join(parts)}]"
    return _literal(value, {})


def _literal(value: Any, names: Mapping[Node, str]) -> str:
    match value:
        case Node():
            return names[value]
        case list() | tuple():
            return f"[{', '.join(_literal(x, names) for x in value)}]"
        case float() | complex():
            return f"{type(value).__name__}({str(value)!r})"
        case torch.device():
            return f"torch.device({str(value)!r})"
    return repr(value)


def _program(node: Node, inputs: Mapping[Node, Any]) -> torch.export.ExportedProgram:
    """Return a higher-order op, with its graphs, as a program."""
    graph, copies = Graph(), {}
    root = torch.nn.Module()
    given = []
    for i, (source, value) in enumerate(inputs.items()):
        if isinstance(value, GraphModule):
            setattr(root, f"graph_{i}", value)
            copies[source] = graph.get_attr(f"graph_{i}")
        elif isinstance(value, torch.Tensor):
            copies[source] = graph.placeholder(f"x{i}")
            given.append(value)

    def copied(n: Node) -> Any:
        return copies.get(n, inputs[n])

    graph.output(graph.node_copy(node, copied))
    return torch.export.export(GraphModule(root, graph), tuple(given))

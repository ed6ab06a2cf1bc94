"""Structure, names and dims that capture() gives, each case a line of a table."""

from __future__ import annotations

import dataclasses
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch.export import AdditionalInputs, Dim, ShapesCollection

from tpu_export.converters.stablehlo.location import source_line
from tpu_export.exporter.capture import Captured, capture
from tpu_export.exporter.refusals import NotExportableError
from tpu_export.exporter.signature import UnsupportedValueError
from tpu_export.runtime.signature import Dim as DynamicDim
from tpu_export.runtime.signature import Tree

X = torch.arange(6.0).reshape(2, 3)
BATCH = Dim("batch", min=2, max=16)


@dataclasses.dataclass
class State:
    key: torch.Tensor
    value: torch.Tensor
    extra: torch.Tensor | None = None


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


def leaves(tree: Tree) -> list[Tree]:
    if "leaf" in tree or "const" in tree:
        return [tree]
    kinds = ("list", "tuple", "dict", "fields")
    children = next(tree[kind] for kind in kinds if kind in tree)
    assert isinstance(children, list)
    return [
        leaf
        for child in children
        for leaf in leaves(child[1] if isinstance(child, list) else child)
    ]


def shapes(specs: object) -> dict[str, tuple[object, ...]]:
    return {s.name: s.shape for s in specs}  # type: ignore[attr-defined]


INPUTS: list[
    tuple[str, Callable[..., object], tuple[object, ...], dict[str, object], list[str]]
] = [
    ("positional", lambda x, y: x + y, (X, X), {}, ["x", "y"]),
    ("keyword", lambda x, y: x + y, (), {"y": X, "x": X}, ["y", "x"]),
    ("both", lambda x, *, scale: x * scale, (X,), {"scale": X}, ["x", "scale"]),
    ("varargs", lambda *xs: xs[0] + xs[1], (X, X), {}, ["xs_0", "xs_1"]),
    ("kwargs", lambda **kw: kw["a"] + kw["b"], (), {"a": X, "b": X}, ["a", "b"]),
    ("list", lambda xs: xs[0] + xs[1], ([X, X],), {}, ["xs.0", "xs.1"]),
    (
        "nested",
        lambda cache: cache[0]["key"] + cache[1][0],
        (({"key": X}, [X]),),
        {},
        ["cache.0.key", "cache.1.0"],
    ),
    ("int keys", lambda d: d[3] + d[1], ({3: X, 1: X},), {}, ["d.3", "d.1"]),
    (
        "odd keys",
        lambda d: d["a/b"] + d["a b"],
        ({"a/b": X, "a b": X},),
        {},
        ["d.a/b", "d.a b"],
    ),
    (
        "collision",
        lambda d: d["a.b"] + d["a"]["b"],
        ({"a.b": X, "a": {"b": X}},),
        {},
        ["d.a.b", "d.a.b_1"],
    ),
    (
        "dataclass",
        lambda s: s.key + s.value,
        (State(X, X),),
        {},
        ["s.key", "s.value"],
    ),
    (
        "namedtuple",
        lambda p: p.left + p.right,
        (Pair(X, X),),
        {},
        ["p.left", "p.right"],
    ),
    ("ordered", lambda d: d["b"], (OrderedDict(b=X),), {}, ["d.b"]),
    (
        "constants",
        lambda x, n, mode, mask=None: x * n if mode == "times" else x,
        (X, 3, "times"),
        {"mask": None},
        ["x"],
    ),
]


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "names"),
    [c[1:] for c in INPUTS],
    ids=[c[0] for c in INPUTS],
)
def test_inputs_keep_their_names(
    function: Callable[..., object],
    args: tuple[object, ...],
    kwargs: dict[str, object],
    names: list[str],
) -> None:
    captured = capture(function, args, kwargs)
    assert [spec.name for spec in captured.signature.inputs] == names
    indices = [
        leaf["leaf"]
        for parameter in captured.signature.parameters
        for leaf in leaves(parameter.tree)
        if "leaf" in leaf
    ]
    assert indices == list(range(len(names)))
    assert len(captured.example_inputs()) == len(names)
    json.dumps(dataclasses.asdict(captured.signature))


OUTPUTS: list[tuple[str, Callable[[torch.Tensor], object], list[str], object]] = [
    ("one", lambda x: x + 1, ["output_0"], {"leaf": 0}),
    (
        "tuple",
        lambda x: (x + 1, x + 2),
        ["output_0", "output_1"],
        {"tuple": [{"leaf": 0}, {"leaf": 1}]},
    ),
    ("input itself", lambda x: x, ["output_0"], {"leaf": 0}),
    (
        "the same twice",
        lambda x: [x, x],
        ["output_0", "output_1"],
        {"list": [{"leaf": 0}, {"leaf": 1}]},
    ),
    (
        "constants",
        lambda x: (None, 5, x + 1, 2.5, "s", True),
        ["output_2"],
        {
            "tuple": [
                {"const": None},
                {"const": 5},
                {"leaf": 0},
                {"const": 2.5},
                {"const": "s"},
                {"const": True},
            ]
        },
    ),
    (
        "dict",
        lambda x: {"b": x + 1, 7: [x + 2]},
        ["b", "output_7.0"],
        {"dict": [["b", {"leaf": 0}], [7, {"list": [{"leaf": 1}]}]]},
    ),
    (
        "dataclass with None",
        lambda x: State(x + 1, x + 2),
        ["key", "value"],
        {
            "record": "State",
            "kind": "dataclass",
            "fields": [
                ["key", {"leaf": 0}],
                ["value", {"leaf": 1}],
                ["extra", {"const": None}],
            ],
        },
    ),
    (
        "namedtuple",
        lambda x: Pair(right=x + 1, left=x + 2),
        ["left", "right"],
        {
            "record": "Pair",
            "kind": "namedtuple",
            "fields": [["left", {"leaf": 0}], ["right", {"leaf": 1}]],
        },
    ),
    (
        "what torch itself returns with names",
        lambda x: torch.max(x, 0),
        ["values", "indices"],
        {
            "record": "max",
            "kind": "namedtuple",
            "fields": [["values", {"leaf": 0}], ["indices", {"leaf": 1}]],
        },
    ),
    (
        "constants",
        lambda x: (x + 1, 3, x.shape[0]),  # a static size is one
        ["output_0"],
        {"tuple": [{"leaf": 0}, {"const": 3}, {"const": 2}]},
    ),
]


@pytest.mark.parametrize(
    ("function", "names", "tree"), [c[1:] for c in OUTPUTS], ids=[c[0] for c in OUTPUTS]
)
def test_outputs_keep_their_structure(
    function: Callable[[torch.Tensor], object], names: list[str], tree: object
) -> None:
    signature = capture(function, (X,)).signature
    assert [spec.name for spec in signature.outputs] == names
    assert signature.output_tree == tree


DIMS: list[
    tuple[str, object, dict[str, tuple[object, ...]], tuple[DynamicDim, ...]]
] = [
    ("none", None, {"x": (2, 3), "y": (4,)}, ()),
    (
        "named",
        {"x": {0: BATCH}, "y": None},
        {"x": ("batch", 3), "y": (4,)},
        (DynamicDim("batch", 2, 16),),
    ),
    (
        "derived",
        {"x": {0: BATCH}, "y": {0: 2 * BATCH}},
        {"x": ("batch", 3), "y": ("2*batch",)},
        (DynamicDim("batch", 2, 16),),
    ),
    (
        "derived from a dim that no input has",
        ({}, {0: 2 * Dim("half", max=9)}),
        {"x": (2, 3), "y": ("2*half",)},
        (DynamicDim("half", 1, 9),),
    ),
    (
        "automatic",
        {"x": {0: Dim.AUTO, 1: Dim.STATIC}, "y": (Dim.AUTO,)},
        {"x": ("x_0", 3), "y": ("y_0",)},
        (DynamicDim("x_0"), DynamicDim("y_0")),
    ),
    (
        "a name that an automatic one would take",
        {"x": {0: Dim.AUTO}, "y": {0: Dim("x_0", max=5)}},
        {"x": ("x_0_1", 3), "y": ("x_0",)},
        (DynamicDim("x_0", 1, 5), DynamicDim("x_0_1")),
    ),
]


@pytest.mark.parametrize(
    ("asked", "inputs", "dims"), [c[1:] for c in DIMS], ids=[c[0] for c in DIMS]
)
def test_dims_have_the_users_names(
    asked: Mapping[str, object] | None,
    inputs: dict[str, tuple[object, ...]],
    dims: tuple[DynamicDim, ...],
) -> None:
    captured = capture(
        lambda x, y: (x + 1, y * 2), (X, torch.ones(4)), dynamic_shapes=asked
    )
    assert shapes(captured.signature.inputs) == inputs
    assert {(d.name, d.maximum) for d in captured.signature.dims} == {
        (d.name, d.maximum) for d in dims
    }
    assert set(captured.symbol_names.values()) == {d.name for d in dims}
    assert set(captured.example_dims()) == {d.name for d in dims}


def test_dim_bounds_and_example_sizes() -> None:
    captured = capture(
        lambda x, y: (x + 1, y * 2),
        (X, torch.ones(4)),
        dynamic_shapes={"x": {0: BATCH}, "y": {0: 2 * BATCH}},
    )
    assert captured.signature.dims == (DynamicDim("batch", 2, 16),)
    assert captured.example_dims() == {"batch": 2}


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: torch.cat([x, x]), ("2*batch", 3)),
        (lambda x: x.flatten(), ("3*batch",)),
        (lambda x: x[1:], ("batch - 1", 3)),
        (lambda x: x[::2], ("((batch + 1) // 2)", 3)),
        (lambda x: x[:, None] * x[None], ("batch", "batch", 3)),
        (lambda x: (x @ x.mT).flatten(), ("(batch*batch)",)),
    ],
)
def test_result_shapes_are_expressions(
    function: Callable[..., object], shape: tuple[object, ...]
) -> None:
    captured = capture(function, (torch.ones(6, 3),), dynamic_shapes={"x": {0: BATCH}})
    (output,) = captured.signature.outputs
    assert output.shape == shape
    # a loader evaluates it as Python
    sizes = [eval(str(s), {}, {"batch": 6, "max": max}) for s in shape]
    result = function(torch.ones(6, 3))
    assert isinstance(result, torch.Tensor)
    assert sizes == list(result.shape)


def test_a_symbolic_size_is_an_int64_output() -> None:
    captured = capture(
        lambda x: (x.shape[0] * 2, x + 1), (X,), dynamic_shapes={"x": {0: BATCH}}
    )
    size, _ = captured.signature.outputs
    assert (size.name, size.shape, size.dtype) == ("output_0", (), "int64")


def test_shapes_collection_and_additional_inputs() -> None:
    x = torch.ones(4, 3)
    collection = ShapesCollection()
    collection[x] = {0: BATCH}
    captured = capture(nn.Linear(3, 2), (x,), dynamic_shapes=collection)
    assert captured.signature.inputs[0].shape == ("batch", 3)
    more = AdditionalInputs()
    more.add((torch.ones(5, 3),))
    captured = capture(nn.Linear(3, 2), (x,), dynamic_shapes=more)
    assert captured.signature.inputs[0].shape == ("input_0", 3)


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return self.fc(x) * self.count

    def encode(self, x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        return self.fc(x) * scale


def test_a_method_shares_its_modules_weights() -> None:
    model = Counter()
    captured = capture(model.encode, (X,), name="encode")
    assert captured.name == captured.signature.name == "encode"
    assert set(captured.program.state_dict) >= {"fc.weight", "fc.bias"}
    assert "forward" not in model.__dict__
    torch.testing.assert_close(captured.eager(X), model.encode(X))


def test_capture_leaves_the_model_alone() -> None:
    model = Counter()
    captured = capture(model, (X,))
    assert float(model.count) == 0.0
    assert model.training
    assert not model._forward_hooks
    assert captured.eager is model
    assert captured.model_file == Path(__file__).resolve()


def test_a_function_keeps_the_weights_of_modules_it_closes_over() -> None:
    net = nn.Linear(3, 2)
    captured = capture(lambda x: net(x) + 1, (X,))
    assert set(captured.program.state_dict) == {"net.weight", "net.bias"}


class Scaled:
    def __init__(self) -> None:
        self.scale = torch.tensor([2.0, 3.0, 4.0])

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
    return x * by


@pytest.mark.parametrize("model", [Scaled(), partial(scaled, by=2.0)])
def test_a_callable_object_is_a_function(model: Callable[..., object]) -> None:
    captured = capture(model, (torch.ones(3),))
    assert [spec.name for spec in captured.signature.inputs] == ["x"]
    assert captured.model_file == Path(__file__)


@torch.no_grad()
def without_gradients(x: torch.Tensor) -> torch.Tensor:
    return x / 2


class Chosen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.forward = self.other

    def other(self, x: torch.Tensor) -> torch.Tensor:
        return x / 2


@pytest.mark.parametrize(
    "model",
    [
        scaled,
        Scaled(),
        partial(scaled, by=2.0),
        without_gradients,
        Chosen(),
        Counter().encode,
        lambda x, _=1: x * 2,
    ],
)
def test_each_op_has_a_line(model: Callable[..., object]) -> None:
    args = (torch.ones(3), 2.0) if model is scaled else (torch.ones(3),)
    captured = capture(model, args)
    for graph in captured.program.graph_module.modules():
        assert isinstance(graph, torch.fx.GraphModule)
        lines = {
            source_line(node, captured.model_file)
            for node in graph.graph.nodes
            if isinstance(node.target, torch._ops.OpOverload)
        }
        assert all(line.startswith("test_capture.py:") for line in lines)


def test_saved_and_loaded_programs_have_the_same_signature(tmp_path: Path) -> None:
    def model(x: torch.Tensor, cache: list[torch.Tensor], *, scale: float) -> object:
        return {"y": x * scale, "cache": [cache[0] + 1, None]}

    fresh = capture(
        model,
        (X, [X]),
        {"scale": 2.0},
        dynamic_shapes={"x": {0: BATCH}, "cache": None, "scale": None},
    )
    path = tmp_path / "m.pt2"
    torch.export.save(fresh.program, path)
    for again in (capture(fresh.program), capture(path), capture(str(path))):
        assert names(again) == names(fresh)
        assert again.signature.output_tree == fresh.signature.output_tree
        assert again.signature.inputs[0].shape == ("x_0", 3)
        assert again.example_dims() == {"x_0": 2}
        torch.testing.assert_close(again.eager(X, [X], scale=2.0)["y"], X * 2)


def names(captured: Captured) -> list[str]:
    signature = captured.signature
    return [
        s.name for s in (*signature.parameters, *signature.inputs, *signature.outputs)
    ]


def test_a_decomposed_program_keeps_only_the_users_outputs() -> None:
    program = capture(Counter(), (X,)).program.run_decompositions({})
    signature = capture(program).signature
    assert [spec.name for spec in signature.outputs] == ["output_0"]
    assert [spec.name for spec in signature.inputs] == ["x"]


def test_a_program_without_example_inputs_gets_seeded_ones() -> None:
    program = capture(nn.Linear(3, 2), (X,), dynamic_shapes=({0: BATCH},)).program
    program._example_inputs = None
    captured = capture(program)
    (example,) = captured.example_inputs()
    assert example.shape[1] == 3
    assert captured.eager(example).shape[1] == 2


@pytest.mark.parametrize(
    ("model", "shapes_asked"),
    [
        (nn.LSTM(3, 4, batch_first=True), {1: Dim("time", min=2, max=50)}),
        (nn.GRU(3, 4, batch_first=True), {1: Dim("time", min=2, max=50)}),
    ],
)
def test_recurrences_keep_a_dynamic_time_axis(
    model: nn.Module, shapes_asked: dict[int, object]
) -> None:
    captured = capture(model, (torch.randn(2, 7, 3),), dynamic_shapes=(shapes_asked,))
    assert captured.signature.inputs[0].shape == (2, "time", 3)
    assert captured.signature.outputs[0].shape == (2, "time", 4)
    longer = torch.randn(2, 11, 3)
    expected = model(longer)[0]
    torch.testing.assert_close(captured.program.module()(longer)[0], expected)


def test_an_example_of_size_one_may_stand_for_a_dynamic_axis() -> None:
    captured = capture(
        nn.Linear(3, 2),
        (torch.ones(1, 3),),
        dynamic_shapes=({0: Dim("batch", min=1, max=8)},),
    )
    assert captured.signature.inputs[0].shape == ("batch", 3)
    assert captured.signature.dims == (DynamicDim("batch", 1, 8),)


@pytest.mark.parametrize(
    ("function", "x", "words"),
    [
        (lambda x: x.to_dense(), torch.eye(2).to_sparse(), "x is a tensor of layout"),
        (lambda x: x.to(torch.complex32), X, "has dtype torch.complex32"),
    ],
)
def test_values_no_artifact_can_hold(
    function: Callable[..., object], x: torch.Tensor, words: str
) -> None:
    with pytest.raises(UnsupportedValueError, match=words):
        capture(function, (x,))


class _Switches(nn.Module):
    """Enters modes and leaves them on."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.set_grad_enabled(False)
        torch.autocast("cpu", dtype=torch.float16).__enter__()
        return x @ x


@pytest.mark.parametrize("strict", [False, True])
def test_modes_of_the_process_stay_as_they_were(*, strict: bool) -> None:
    def modes() -> tuple[object, ...]:
        cast = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        return (torch.is_grad_enabled(), *cast)

    before = modes()
    with pytest.raises(NotExportableError):
        capture(_Switches(), (torch.ones(2, 2),), strict=strict)
    assert modes() == before
    with torch.no_grad():
        inside = modes()
        capture(nn.Linear(2, 2), (torch.ones(2, 2),), strict=strict)
        assert modes() == inside


def test_autocast_around_a_capture_is_refused() -> None:
    refused = pytest.raises(NotExportableError, match=r"autocast is on around")
    with torch.autocast("cpu"), refused:
        capture(nn.Linear(2, 2), (torch.ones(2, 2),))


@pytest.mark.filterwarnings("ignore:The tensor attributes")  # of the plain export
@pytest.mark.parametrize(
    "model", [nn.GRU(4, 5, batch_first=True), nn.LSTM(4, 5, batch_first=True)]
)
def test_a_plain_export_before_spoils_nothing(model: nn.Module) -> None:
    """Ops keep the kernels that torch.export found, which fix the number of steps."""
    x, dynamic = torch.randn(2, 6, 4), ({1: Dim("steps", min=2, max=50)},)
    torch.export.export(model, (x,))
    captured = capture(model, (x,), dynamic_shapes=dynamic)
    assert captured.signature.dims[0].name == "steps"


def test_a_plain_export_before_spoils_no_pool() -> None:
    x, dynamic = torch.randn(2, 6, 8), ({2: Dim("steps", min=4, max=50)},)
    model = nn.MaxPool1d(2)
    torch.export.export(model, (x,))
    captured = capture(model, (x,), dynamic_shapes=dynamic)
    assert captured.signature.outputs[0].shape[2] != 4

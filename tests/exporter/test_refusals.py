"""What users read when torch.export refuses: where, why and what to do."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

from tpu_export.exporter.capture import capture
from tpu_export.exporter.entry import InputMismatchError, NotAModelError
from tpu_export.exporter.programs import (
    ProgramFileError,
    UnregisteredTypeError,
    load_program,
)
from tpu_export.exporter.refusals import DimRangeError, NotExportableError, shorten
from tpu_export.runtime.errors import TpuExportError

X = torch.ones(8)


class Opaque:
    def __init__(self, value: torch.Tensor) -> None:
        self.value = value


def branch(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return x
    return x - 1


def item(x: torch.Tensor) -> object:
    return [1, 2, 3][int(x[0].item())]


def to_numpy(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.numpy() * 2)


def raises(x: torch.Tensor) -> torch.Tensor:
    message = "bad thing"
    raise ValueError(message)


def misspelt(x: torch.Tensor) -> torch.Tensor:
    return x.argsort(0, stable=True)  # type: ignore[call-overload]  # that is the point


def opaque(x: torch.Tensor) -> object:
    return Opaque(x)


def write_at(x: torch.Tensor) -> torch.Tensor:
    kept, n = torch.zeros(8, 3), x.sum().long()
    kept[n % 8] = x[0]
    return kept


def least_squares(x: torch.Tensor) -> torch.Tensor:
    return torch.linalg.lstsq(x[:, None], x[:, None], driver="gelsd").residuals


REFUSALS: list[tuple[Callable[..., object], str, str, int]] = [
    (branch, "data-dependent", "torch.cond", 1),
    (item, "data-dependent", ".item()", 1),
    (write_at, "data-dependent", "index_copy_", 2),
    (least_squares, "only at full rank", "square()", 1),
    (to_numpy, ".numpy() is not supported", "numpy runs outside", 1),
    (raises, "ValueError: bad thing", "fails in torch eager too", 2),
    (misspelt, "TypeError: argsort() received an", "fails in torch eager too", 1),
]


@pytest.mark.parametrize(("function", "reason", "advice", "offset"), REFUSALS)
def test_a_refusal_names_place_reason_and_advice(
    function: Callable[..., object], reason: str, advice: str, offset: int
) -> None:
    with pytest.raises(NotExportableError) as info:
        capture(function, (X,))
    line = inspect.getsourcelines(function)[1] + offset
    assert f"at {Path(__file__).name}:{line}" in info.value.message
    assert reason in info.value.message
    assert advice in info.value.hint
    assert "\n" not in info.value.message
    assert "TORCH_LOGS" not in info.value.message


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.last: torch.Tensor | None = None

    def forward(self, x: torch.Tensor, fails: bool) -> torch.Tensor:
        self.count.add_(1)
        self.last = x if self.last is None else self.last + x
        return (
            nn.functional.linear(x, torch.ones(3, 5))
            if fails
            else torch.tensor(x.numpy())
        )


@pytest.mark.parametrize("fails", [False, True])
def test_a_model_is_left_as_it_was(fails: bool, capsys: Any) -> None:
    model, before = Counts(), torch.get_rng_state()
    with pytest.raises(NotExportableError) as info:
        capture(model, (X, fails))
    assert ("the model itself fails at" in info.value.message) is fails
    assert (model.count, model.last) == (0, None)
    assert torch.equal(before, torch.get_rng_state())
    assert capsys.readouterr() == ("", "")


def test_an_unknown_class_in_the_result() -> None:
    with pytest.raises(NotExportableError, match="Opaque") as info:
        capture(opaque, (X,))
    assert "dataclasses" in info.value.hint


def test_an_average_over_all_calls() -> None:
    model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4, momentum=None))
    with pytest.raises(
        NotExportableError, match=r"model in 1 \(BatchNorm1d\): "
    ) as info:
        capture(model, (torch.ones(2, 8),))
    assert info.value.hint.startswith("momentum=None averages")
    capture(model.eval(), (torch.ones(2, 8),))


def test_an_unknown_class_in_the_inputs() -> None:
    with pytest.raises(NotExportableError, match="Opaque"):
        capture(lambda o: o.value, (Opaque(X),))


class Block(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return branch(x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Identity(), Block()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def test_the_module_path_is_named() -> None:
    with pytest.raises(NotExportableError, match=r"in layers\.1 \(Block\)"):
        capture(Net(), (X,))


def test_torchs_graph_is_not_printed_but_the_models_words_are(
    capfd: pytest.CaptureFixture[str],
) -> None:

    def talks(x: torch.Tensor) -> torch.Tensor:
        print("hello from the model", file=sys.stderr)
        return branch(x)

    with pytest.raises(NotExportableError):
        capture(talks, (X,))
    captured = capfd.readouterr()
    assert "hello from the model" in captured.err
    assert "arg0_1" not in captured.err + captured.out


MISMATCHES: list[tuple[tuple[object, ...], dict[str, object], str]] = [
    ((), {}, "missing a required argument: 'x'"),
    ((X,), {"z": X}, "unexpected keyword argument 'z'"),
    ((X, X, X), {}, "too many positional arguments"),
    ((X,), {"x": X}, "multiple values for argument 'x'"),
]


@pytest.mark.parametrize(("args", "kwargs", "words"), MISMATCHES)
def test_inputs_that_do_not_fit(
    args: tuple[object, ...], kwargs: dict[str, object], words: str
) -> None:
    class Two(nn.Module):
        def forward(self, x: torch.Tensor, y: int = 3) -> torch.Tensor:
            return x + y

    with pytest.raises(InputMismatchError, match=r"Two\.forward") as info:
        capture(Two(), args, kwargs)
    assert words in info.value.message


def test_inputs_that_do_not_fit_a_program() -> None:
    program = capture(lambda x: x + 1, (X,)).program
    with pytest.raises(InputMismatchError, match="do not fit the exported program"):
        capture(program, (X, X))


@pytest.mark.parametrize("model", [3, None, [nn.Identity()]])
def test_things_that_are_no_model(model: object) -> None:
    with pytest.raises(NotAModelError, match=type(model).__name__.removesuffix("Type")):
        capture(model, (X,))  # type: ignore[arg-type]


class Assigned(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.forward = function


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (len, "len"),
        (torch.add, "add"),
        (partial(torch.add, torch.ones(3)), "a functools.partial of add"),
        (partial(nn.Identity()), "a functools.partial of Identity"),
        (nn.Identity, "the class Identity"),
        (int, "the class int"),
        (Assigned(torch.relu), "Assigned.forward"),
    ],
)
def test_callables_without_python_code(model: Any, name: str) -> None:
    with pytest.raises(NotAModelError, match=f"^TPX-0102: {name} cannot be captured"):
        capture(model, (X,))


async def later(x: torch.Tensor) -> torch.Tensor:
    return x


def one_by_one(x: torch.Tensor) -> Any:
    yield x


@pytest.mark.parametrize("model", [later, one_by_one])
def test_functions_that_a_call_does_not_run(model: Any) -> None:
    with pytest.raises(NotAModelError, match="it is a coroutine or generator"):
        capture(model, (X,))


def test_weights_that_are_not_there_yet() -> None:
    model = nn.Sequential(nn.LazyLinear(3))
    with pytest.raises(
        NotAModelError, match=r"not initialized yet: 0\.weight, 0\.bias"
    ):
        capture(model, (X,))


def test_torchscript_is_no_model() -> None:
    script = torch.jit.trace(nn.ReLU(), X)
    for model in (script, nn.Sequential(script), torch.jit.trace(torch.relu, X)):
        with pytest.raises(TpuExportError) as info:
            capture(model, (X,))
        assert "not its TorchScript form" in info.value.hint


def halves(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.shape[0] > 5 else x - 1


def pinned(x: torch.Tensor) -> torch.Tensor:
    return x + torch.ones(8)


def in_fours(x: torch.Tensor) -> torch.Tensor:
    return x.view(x.shape[0] // 4, 4)


RANGES: list[tuple[Callable[..., object], str, str]] = [
    (halves, "axis 0 of x", "batch = Dim('batch', min=6, max=16)"),
    (pinned, "constant (8)", "static"),
    (in_fours, "satisfy batch == (4*(batch // 4)), ", "; batch = 4*_batch"),
]


@pytest.mark.parametrize(("function", "said", "advice"), RANGES)
def test_a_range_that_torch_narrows(
    function: Callable[..., object], said: str, advice: str
) -> None:
    batch = Dim("batch", min=2, max=16)
    with pytest.raises(DimRangeError) as info:
        capture(function, (X,), dynamic_shapes={"x": {0: batch}})
    assert "batch" in info.value.message
    assert said in info.value.message
    assert advice in info.value.hint


NO_FIT: list[tuple[Any, str]] = [
    ({"x": {3: Dim("b")}}, "axis 3 of x, whose example has only 1"),
    (({3: Dim("b")},), "axis 3 of x, whose example has only 1"),
    ({"x": {0: "b"}}, "the text 'b' for axis 0 of x"),
    ({"x": (Dim("b", min=9),)}, "axis 0 of x is 8 in the example, outside of b = 9 …"),
    ({"x": {0: Dim("b", max=7)}}, "outside of b = 0 … 7"),
]


@pytest.mark.parametrize(("dims", "words"), NO_FIT, ids=[w for _, w in NO_FIT])
def test_dynamic_shapes_that_do_not_fit_the_example(dims: Any, words: str) -> None:
    with pytest.raises(DimRangeError) as info:
        capture(lambda x: x + 1, (X,), dynamic_shapes=dims)
    assert words in info.value.message
    nested = {"xs": [None, dims["x"] if isinstance(dims, dict) else dims[0]]}
    with pytest.raises(DimRangeError) as info:
        capture(lambda xs: xs[0] + xs[1], ([X, X],), dynamic_shapes=nested)
    assert words.replace(" x", " xs.1") in info.value.message


def test_dynamic_shapes_of_another_structure() -> None:
    with pytest.raises(NotExportableError, match="dynamic_shapes") as info:
        capture(lambda x: x + 1, (X,), dynamic_shapes={"y": {0: Dim("b")}})
    assert "structure of the inputs" in info.value.hint


def test_a_type_that_nothing_registered(tmp_path: Path) -> None:

    path = tmp_path / "m.pt2"
    code = f"""
import dataclasses, torch
@dataclasses.dataclass
class Pair:
    a: torch.Tensor
torch.export.register_dataclass(Pair, serialized_type_name="shop.models.Pair")
program = torch.export.export(
    type("M", (torch.nn.Module,), {{"forward": lambda self, x: Pair(x + 1)}})(),
    (torch.ones(2),))
torch.export.save(program, {str(path)!r})
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    with pytest.raises(UnregisteredTypeError, match=r"shop\.models\.Pair") as info:
        load_program(path)
    assert "import shop.models" in info.value.hint


def test_an_op_that_nothing_defines(tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    code = f"""
import torch
@torch.library.custom_op("shop::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2
twice.register_fake(lambda x: torch.empty_like(x))
program = torch.export.export(
    type("M", (torch.nn.Module,), {{"forward": lambda self, x: twice(x)}})(), (torch.ones(2),))
torch.export.save(program, {str(path)!r})
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    message = r"m\.pt2 calls torch\.ops\.shop\.twice\.default"
    with pytest.raises(ProgramFileError, match=message) as info:
        load_program(path)
    assert "model.py" in info.value.hint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "no reason given"),
        ("\n\nreason.\nmore", "reason"),
        ("For more information, run\nreason", "reason"),
        ("one of:\n * (int a)\n * (str b)\nmore", "one of: (int a) or (str b)"),
        ("u0 is bad (unhinted: u0). (Size-like: none)", "u0 is bad"),
    ],
)
def test_shorten(text: str, expected: str) -> None:
    assert shorten(text) == expected


def test_every_error_has_its_own_code() -> None:
    import tpu_export.exporter.signature
    import tpu_export.exporter.sources_hf
    import tpu_export.exporter.sources_python  # noqa: F401

    def subclasses(kind: type) -> list[type]:
        return [c for s in kind.__subclasses__() for c in (s, *subclasses(s))]

    ours = [
        c
        for c in subclasses(TpuExportError)
        if c.__module__.startswith("tpu_export.exporter.")
    ]
    codes = [c.code for c in ours if c.code.startswith("TPX-01")]
    assert len(codes) == len(set(codes)) >= 11


@pytest.mark.parametrize(
    ("model", "dims", "advice"),
    [
        (lambda x: x * float(x.shape[0]), {0: Dim("b")}, "a plain number of the size"),
        (lambda x: x if x.shape[0] != 7 else -x, {0: Dim("b")}, "or say Dim.AUTO"),
        (lambda x: x * 2, {0: Dim("b") - 1}, "min= and max="),
    ],
)
def test_advice_for_dynamic_sizes(model: Any, dims: Any, advice: str) -> None:
    with pytest.raises((DimRangeError, NotExportableError)) as info:
        capture(model, (torch.ones(5, 3),), dynamic_shapes=(dims,))
    assert advice in info.value.hint


EDGE = "give an example with 2 or more there"


@pytest.mark.parametrize(
    ("model", "shape", "axis", "advice"),
    [
        (nn.GRU(3, 3, batch_first=True), (1, 5, 3), 0, EDGE),
        (nn.LSTM(3, 3), (5, 1, 3), 1, EDGE),
        (nn.RNN(3, 3), (5, 2, 3), 0, "over a fixed number of steps"),
        (nn.RNN(3, 3), (1, 2, 3), 0, EDGE),
        (lambda x: torch.cat([x, torch.ones(1, 3)], 1), (1, 3), 0, EDGE),
        (lambda x: x * float(x.shape[0]), (4, 3), 0, "a plain number of the size"),
    ],
)
def test_why_an_axis_is_a_constant(
    model: Any, shape: tuple[int, ...], axis: int, advice: str
) -> None:
    dims = ({axis: Dim("n")},)
    with pytest.raises(DimRangeError, match="a constant") as info:
        capture(model, (torch.ones(shape),), dynamic_shapes=dims)
    assert advice in info.value.hint

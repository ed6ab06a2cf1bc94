"""Weights of tensor classes, as torchao's quantize_ leaves them, are plain once captured."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.testing._internal.two_tensor import TwoTensor

import tpu_export as tx
from tpu_export.exporter.capture import Captured, capture
from tpu_export.exporter.signature import UnsupportedValueError

X = torch.linspace(-1, 1, 12).reshape(3, 4)


def two(*shape: int) -> Tensor:
    both: Tensor = TwoTensor(torch.randn(shape), torch.randn(shape))
    return both


class Inner(nn.Module):
    """Returns what F.linear gives for the first tensor of its weight's pair."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 5)
        self.fc.weight = nn.Parameter(weight, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.fc.weight
        while isinstance(weight, TwoTensor):
            weight = weight.a
        return nn.functional.linear(x, weight, self.fc.bias)


class Whole(Inner):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return x + 1, self.fc.weight


class Copied(Inner):
    def forward(self, x: Tensor) -> Tensor:
        self.fc.weight.copy_(self.fc.weight)
        return x + 1


class Written(Inner):
    """Doubles an inner tensor at each call."""

    def forward(self, x: Tensor) -> Tensor:
        weight: Tensor = self.fc.weight.a
        weight.mul_(2)
        return nn.functional.linear(x, weight, self.fc.bias)


class Weighted(nn.Module):
    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        return x @ weight.a  # type: ignore[attr-defined,no-any-return]


def weights(captured: Captured) -> list[str]:
    specs = captured.program.graph_signature.input_specs
    return [str(spec.target) for spec in specs if spec.target is not None]


def run(captured: Captured, tmp_path: Path, *args: Tensor) -> Tensor:
    program = tx.load(captured.lower().save(tmp_path / "m.tpuexe"), device="cpu")
    return torch.tensor(program(*(a.numpy() for a in args)))


def test_inner_tensors_that_are_read_are_weights_of_their_own(tmp_path: Path) -> None:
    model = Inner(two(5, 4))
    captured = capture(model, (X,))
    assert weights(captured) == ["fc.weight.a", "fc.bias"]
    assert list(captured.program.state_dict) == [
        "fc.weight.a",
        "fc.weight.b",
        "fc.bias",
    ]
    held = captured.program.state_dict["fc.weight.a"]
    assert held.data_ptr() == model.fc.weight.a.data_ptr()
    torch.testing.assert_close(captured.program.module()(X), model(X))
    torch.testing.assert_close(run(captured, tmp_path, X), model(X).detach())


def test_classes_in_classes_are_unwrapped_to_the_last() -> None:
    model = Inner(TwoTensor(two(5, 4), two(5, 4)))
    captured = capture(model, (X,))
    assert weights(captured) == ["fc.weight.a.a", "fc.bias"]
    torch.testing.assert_close(captured.program.module()(X), model(X))


def test_a_program_that_is_handed_in_stays_what_it_is_and_is_the_reference() -> None:
    model = Inner(two(5, 4))
    program = torch.export.export(model, (X,))
    captured = capture(program)
    assert isinstance(program.state_dict["fc.weight"], TwoTensor)
    assert isinstance(captured.eager.get_parameter("fc.weight"), TwoTensor)  # type: ignore[attr-defined]
    torch.testing.assert_close(captured.eager(X), model(X))


def test_a_call_may_write_to_an_inner_tensor(tmp_path: Path) -> None:
    model = Written(two(5, 4))
    captured = capture(model, (X,))
    program = tx.load(captured.lower().save(tmp_path / "m.tpuexe"), device="cpu")
    for _ in range(2):
        torch.testing.assert_close(torch.tensor(program(X.numpy())), model(X).detach())
    assert list(program.state) == ["fc.weight.a"]


@pytest.mark.parametrize(
    ("model", "used"),
    [(Whole, "the result"), (Copied, "aten.copy_.default in the root (test_sub")],
)
def test_what_is_taken_as_a_whole_is_refused(model: type[Inner], used: str) -> None:
    with pytest.raises(UnsupportedValueError) as refused:
        capture(model(two(5, 4)), (X,))
    assert "fc.weight is a tensor of a class of its own" in str(refused.value)
    assert f"as a whole by {used}" in str(refused.value)


def test_such_an_input_is_refused() -> None:
    for given in (Weighted(), torch.export.export(Weighted(), (X, two(4, 2)))):
        with pytest.raises(UnsupportedValueError, match="input weight is a tensor of"):
            capture(given, (X, two(4, 2)))


def quantized() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torchao.quantization import Int8WeightOnlyConfig, quantize_

        model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
        quantize_(model.eval(), Int8WeightOnlyConfig())
    return model


@pytest.mark.parametrize("form", ["module", "program", "file"])
def test_torchaos_weights_are_those_of_the_artifact(form: str, tmp_path: Path) -> None:
    model = quantized()
    given: object = model
    if form != "module":
        given = torch.export.export(model, (X,))
    if form == "file":
        torch.export.save(given, tmp_path / "m.pt2")  # type: ignore[arg-type]
        given = tmp_path / "m.pt2"
    done = tx.export(given, (X,), topologies=(), output=tmp_path / "m.tpuexe")
    assert done.parity is not None
    assert done.parity.passed
    program = tx.load(tmp_path / "m.tpuexe", device="cpu")
    torch.testing.assert_close(torch.tensor(program(X.numpy())), model(X).detach())
    assert "0.weight.qdata" in program.weight_names

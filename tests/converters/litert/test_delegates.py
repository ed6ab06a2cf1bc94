"""What is said of delegates is what the wheel says, and the rest is untested."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tpu_export.cli import litert_delegates
from tpu_export.cli.failures import UsageError
from tpu_export.converters.litert.delegates import Delegates, delegates, partition
from tpu_export.converters.litert.errors import LiteRtUnloadableError
from tpu_export.parity.litert import to_litert


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x).softmax(-1)
        return self.linear(torch.cat([y.cumsum(-1), y], -1))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("delegates") / "mixed.tflite"
    return to_litert(Mixed().eval(), (torch.randn(2, 8),)).save(place)


@pytest.fixture(scope="module")
def found(path: Path) -> Delegates:
    return delegates(path)


def test_xnnpack_leaves_a_running_sum_to_a_plain_kernel(found: Delegates) -> None:
    assert found.left == {"CUMSUM": 1}
    assert found.taken["FULLY_CONNECTED"] == 2
    assert found.taken["SOFTMAX"] == 1
    assert found.partitions >= 2


def test_accelerators_and_compilers_are_tried_or_untested(found: Delegates) -> None:
    assert found.accelerators["CPU"] == "yes, in part by plain kernels"
    assert set(found.accelerators) == {"CPU", "GPU", "NPU"}
    assert found.compilers
    assert "RuntimeError" not in " ".join(found.accelerators.values())
    assert all(v.startswith("untested: ") for v in found.compilers.values())


def op(index: int, inputs: list[int], outputs: list[int]) -> dict[str, Any]:
    return {"index": index, "inputs": inputs, "outputs": outputs}


def test_a_piece_is_what_lies_between_its_borders() -> None:
    ops = [op(0, [0], [1]), op(1, [1], [2]), op(2, [2, 1], [3]), op(3, [3], [4])]
    assert partition(ops, [op(9, [1], [3])]) == {1, 2}
    assert partition(ops, [op(9, [0], [1]), op(10, [3], [4])]) == {0, 3}
    assert partition(ops, []) == set()


def test_no_tflite_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "no.tflite"
    path.write_bytes(b"no flatbuffer")
    with pytest.raises(LiteRtUnloadableError, match=r"cannot load .*no\.tflite"):
        delegates(path)
    with pytest.raises(UsageError, match="no file"):
        litert_delegates.show(tmp_path / "missing", as_json=False)


def test_the_command_prints_both_forms(
    monkeypatch: pytest.MonkeyPatch, found: Delegates, path: Path, capsys: Any
) -> None:
    def known(_: Path) -> Delegates:
        return found

    place = "tpu_export.converters.litert.delegates.delegates"
    monkeypatch.setattr(place, known)
    show: Callable[..., None] = litert_delegates.show
    show(path, as_json=True)
    assert json.loads(capsys.readouterr().out)["left"] == {"CUMSUM": 1}
    show(path, as_json=False)
    out = capsys.readouterr().out
    assert "1 CUMSUM" in out
    assert "CompiledModel on GPU" in out


@pytest.mark.parametrize("groups", [1, 32])
def test_the_scale_of_a_norm_is_folded_into_a_large_filter(groups: int) -> None:
    norm = nn.BatchNorm2d(64)
    nn.init.uniform_(norm.running_var, 0.5, 2)
    nn.init.uniform_(norm.weight, 0.5, 2)
    conv = nn.Conv2d(32, 64, 7, groups=groups, bias=False)
    block = nn.Sequential(conv, norm, nn.Conv2d(64, 128, 1, bias=False), nn.ReLU())
    edge = to_litert(block.eval(), (torch.randn(1, 32, 9, 9),))
    assert "MUL" not in edge.report.ops["forward"]
    left = delegates(edge.path).left
    assert not {"CONV_2D", "DEPTHWISE_CONV_2D", "MUL"} & set(left)


def test_a_scale_is_folded_into_a_large_matrix() -> None:
    norm = nn.BatchNorm1d(64)
    nn.init.uniform_(norm.running_var, 0.5, 2)
    block = nn.Sequential(nn.Linear(64, 64), norm)
    edge = to_litert(block.eval(), (torch.randn(4, 64),))
    assert edge.report.ops["forward"] == {"FULLY_CONNECTED": 1}
    assert delegates(edge.path).left == {}

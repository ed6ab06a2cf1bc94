"""The layer that loses most is named, and what it loses is told from what it was given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.parity.conftest import Files, quantize
from tpu_export.parity.layer_runs import LayersDifferError
from tpu_export.parity.layers import Layer, layers, table
from tpu_export.parity.litert import to_litert


@pytest.fixture(scope="module")
def found(transformer: Files) -> list[Layer]:
    return layers(
        transformer.plain, transformer.integer, transformer.samples, signature="forward"
    )


def test_the_layer_with_a_bad_mask_is_named(found: list[Layer]) -> None:
    worst = found[0]
    assert worst.module == "blocks.1.attention"
    assert not worst.inherited
    assert worst.worst.startswith("ADD conftest.py:")
    assert worst.worst_snr < 3


def test_a_good_layer_after_it_only_inherits(found: list[Layer]) -> None:
    after = next(layer for layer in found if layer.module == "head")
    assert after.inherited
    assert after.created > 25 > after.arrives


def test_each_op_is_in_one_layer(found: list[Layer]) -> None:
    spans = sorted((layer.first, layer.ops) for layer in found)
    assert [first + ops for first, ops in spans[:-1]] == [f for f, _ in spans[1:]]
    assert {layer.module for layer in found} >= {"blocks.0.up", "blocks.1.down", "head"}


def test_an_input_loses_as_integers(found: list[Layer]) -> None:
    (given,) = [layer for layer in found if not layer.ops]
    assert given.lines == "input x"
    assert 30 < given.created == given.arrives < 60
    assert given.row()[0] == "(caller)"


def test_the_table_is_sorted_by_what_is_created(found: list[Layer]) -> None:
    created = [layer.created for layer in found]
    assert created == sorted(created)
    assert table(found)[1][0] == "blocks.1.attention"


def test_a_float_file_loses_nothing(transformer: Files) -> None:
    same = layers(
        transformer.plain, transformer.plain, transformer.samples, signature="forward"
    )
    assert {layer.created for layer in same} == {np.inf}
    assert {layer.arrives for layer in same} == {np.inf}
    assert same[0].to_json()["created"] is None


def test_a_linear_with_an_outlier_row_is_named(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16)
    ).eval()
    with torch.no_grad():
        model[2].bias[3] += 300.0
    plain = to_litert(model, (torch.randn(4, 16),)).save(tmp_path / "f.tflite")
    samples = [{"input": np.random.default_rng(0).standard_normal((4, 16), np.float32)}]
    integer = quantize(plain, samples, tmp_path / "q.tflite")
    worst = layers(plain, integer, samples, signature="forward")[0]
    assert worst.module == "2"


def test_files_of_two_models_are_refused(transformer: Files, tmp_path: Path) -> None:
    other = to_litert(nn.Linear(32, 20), (torch.randn(2, 8, 32),))
    path = other.save(tmp_path / "other.tflite")
    with pytest.raises(LayersDifferError, match="from op 1 on"):
        layers(transformer.plain, path, transformer.samples, signature="forward")

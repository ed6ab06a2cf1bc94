from __future__ import annotations

import pytest
import torch
from torch.export import Dim

from tpu_export.exporter.capture import capture
from tpu_export.exporter.second_inputs import resized, second_inputs

CASES = {
    "normal": torch.randn(64, 64, generator=torch.Generator().manual_seed(3)) * 5 + 2,
    "positive": torch.rand(64, 64),
    "half": torch.rand(64, 64).to(torch.bfloat16),
    "ids": torch.randint(3, 9, (64, 64)),
    "bytes": torch.randint(0, 255, (64, 64), dtype=torch.uint8),
    "bool": torch.rand(64, 64) < 0.5,
    "complex": torch.randn(64, 64, dtype=torch.complex64),
    "scalar": torch.tensor(2.0),
    "empty": torch.ones(0, 3),
    "mask": torch.tensor([0.0, -torch.inf, 0.0]),
    "all infinite": torch.full((2,), torch.inf),
    "extreme": torch.tensor([0, 2**63 - 1]),
}


@pytest.mark.parametrize("name", CASES)
def test_second_inputs_are_like_the_example(name: str) -> None:
    example = CASES[name]
    captured = capture(lambda x, n: x, ({"a": example}, 3))
    args, kwargs = second_inputs(captured, 1)
    assert kwargs == {}
    assert args[1] == 3
    drawn = args[0]["a"]  # type: ignore[index]
    assert drawn.shape == example.shape
    assert drawn.dtype == example.dtype
    if example.numel() < 2 or example.dtype.is_complex:
        return
    assert torch.equal(
        drawn.to(torch.float64).isinf(), example.to(torch.float64).isinf()
    )
    if example.dtype == torch.int64 or example.dtype == torch.uint8:
        assert drawn.min() >= example.min()
        assert drawn.max() <= example.max()
    elif example.numel() > 10 and example.dtype.is_floating_point:
        assert abs(float(drawn.float().mean() - example.float().mean())) < 0.3
    if example.min() >= 0:
        assert drawn.min() >= 0


def test_the_seed_decides() -> None:
    captured = capture(lambda x: x + 1, (torch.randn(8),))
    a, b, c = (second_inputs(captured, seed)[0][0] for seed in (1, 1, 2))
    assert isinstance(a, torch.Tensor)
    assert isinstance(b, torch.Tensor)
    assert torch.equal(a, b)
    assert not torch.equal(a, c)  # type: ignore[arg-type]


def test_other_sizes_repeat_and_cut_the_example() -> None:
    ids, mask = torch.tensor([[1, 2, 3]]), torch.tensor([[0.0, -torch.inf, 0.0]])
    captured = capture(
        lambda inputs, n: inputs["ids"] * n + inputs["pair"][0].sum(),
        ({"ids": ids, "pair": (mask, torch.ones(2))}, 3),
        dynamic_shapes=(
            {
                "ids": {0: Dim("b"), 1: Dim("t")},
                "pair": ({1: Dim("t")}, {0: 2 * Dim("b")}),
            },
            None,
        ),
    )
    args, kwargs = resized(captured, captured.example, {"b": 2, "t": 4})
    assert (args[1], kwargs) == (3, {})
    found = args[0]
    assert found["ids"].tolist() == [[1, 2, 3, 1]] * 2  # type: ignore[index]
    assert found["pair"][0].tolist() == [[0, -torch.inf, 0, 0]]  # type: ignore[index]
    assert found["pair"][1].shape == (4,)  # type: ignore[index]
    shorter = resized(captured, captured.example, {"b": 1, "t": 2})[0][0]
    assert shorter["ids"].tolist() == [[1, 2]]  # type: ignore[index]

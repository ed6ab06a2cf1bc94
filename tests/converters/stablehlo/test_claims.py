from __future__ import annotations

from typing import Any

import jax
import pytest
import torch
from jax import export
from torch import nn
from torch.export import Dim

from tpu_export.converters.stablehlo.claims import equalities, orders
from tpu_export.runtime.signature import Dim as Dimension

SIZES = {
    "floordiv(floordiv(h, 2), 3)": "floordiv(h + 0, 6)",
    "2*floordiv(floordiv(h - 2, 2) - 1, 2) + 1": "floordiv(h - 2 + -2, 4)",
    "floordiv(floordiv(h*w + 1, 2) + 3, 4)": "floordiv(h * w + 1 + 6, 8)",
}


@pytest.mark.parametrize("size", SIZES)
def test_claims_are_true_and_jax_takes_them(size):
    h, w = export.symbolic_shape("h, w")
    (value,) = export.symbolic_shape(size, scope=h.scope)
    (claim,) = equalities([jax.ShapeDtypeStruct((3, value), "float32"), w])
    nested, flat = claim.split(" == ")
    assert flat == SIZES[size]
    for height in range(4, 40):
        sizes = {"h": height, "w": 7, "floordiv": lambda a, b: a // b}
        assert eval(nested, sizes) == eval(flat, sizes)
    again = export.symbolic_shape(f"h, w, {nested}, {flat}", constraints=[claim])
    assert again[2] == again[3]


def test_other_sizes_have_no_claims():
    h, w = export.symbolic_shape("h, w")
    assert equalities([h // 2 + w // 2, h * w, (h * 2) // w, 5, None]) == set()


def test_orders_of_sizes():
    dims = [Dimension("x", 1, None), Dimension("y", 1, None)]
    constraints = ["x > y", "y <= 2*x // 3", "x % 2 == 0", "n < x", "x + 1 > x"]
    found = orders(constraints, dims)
    assert found == {"x >= y + 1", "floordiv(2*x, 3) >= y"}
    assert export.symbolic_shape("x, y", constraints=sorted(found))
    assert orders(constraints, []) == set()


class Longer(nn.Module):
    """Takes for granted that x is longer, which torch notes as a constraint."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        n = y.shape[0]
        return x[:n] + y if x.shape[0] > n else x + y[: x.shape[0]]


def test_what_torch_noted_of_two_sizes_decides(check_sizes: Any):
    calls = (((a, 3), (b, 3)) for a, b in ((6, 4), (9, 2), (3, 2)))
    check_sizes(Longer(), ({0: Dim.AUTO}, {0: Dim.AUTO}), *calls)

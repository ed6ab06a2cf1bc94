from __future__ import annotations

import jax
import pytest
from jax import export

from tpu_export.converters.stablehlo.nested_divisions import nested_divisions

SIZES = {
    "floordiv(floordiv(h, 2), 3)": "floordiv(h + 0, 6)",
    "2*floordiv(floordiv(h - 2, 2) - 1, 2) + 1": "floordiv(h - 2 + -2, 4)",
    "floordiv(floordiv(h*w + 1, 2) + 3, 4)": "floordiv(h * w + 1 + 6, 8)",
}


@pytest.mark.parametrize("size", SIZES)
def test_claims_are_true_and_jax_takes_them(size):
    h, w = export.symbolic_shape("h, w")
    (value,) = export.symbolic_shape(size, scope=h.scope)
    (claim,) = nested_divisions([jax.ShapeDtypeStruct((3, value), "float32"), w])
    nested, flat = claim.split(" == ")
    assert flat == SIZES[size]
    for height in range(4, 40):
        sizes = {"h": height, "w": 7, "floordiv": lambda a, b: a // b}
        assert eval(nested, sizes) == eval(flat, sizes)
    again = export.symbolic_shape(f"h, w, {nested}, {flat}", constraints=[claim])
    assert again[2] == again[3]


def test_other_sizes_have_no_claims():
    h, w = export.symbolic_shape("h, w")
    assert nested_divisions([h // 2 + w // 2, h * w, (h * 2) // w, 5, None]) == set()

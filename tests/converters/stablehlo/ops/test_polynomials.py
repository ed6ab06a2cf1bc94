from __future__ import annotations

import jax
import pytest
import torch

from tpu_export.converters.stablehlo.registry import find_rule

aten = torch.ops.aten
INF, NAN = float("inf"), float("nan")
FLOATS = [torch.float32, torch.float64]
# torch takes n times acos(x), whose last places count near the zeros.
LIMITS = {torch.float32: (1e-4, 1e-4), torch.float64: (1e-9, 1e-10)}


def poly(name):
    return getattr(aten, f"special_{name}")


CHEBYSHEV = [
    f"{shift}chebyshev_polynomial_{kind}"
    for shift in ("", "shifted_")
    for kind in "tuvw"
]
POLYNOMIALS = [
    *CHEBYSHEV,
    "hermite_polynomial_h",
    "hermite_polynomial_he",
    "laguerre_polynomial_l",
    "legendre_polynomial_p",
]


@pytest.mark.parametrize("name", POLYNOMIALS)
class TestPolynomials:
    @pytest.mark.parametrize("dtype", FLOATS)
    def test_degrees(self, compare, name, dtype):
        x = torch.linspace(-1.9, 1.9, 30, dtype=dtype)[:, None]
        n = torch.tensor(
            [-3, -1, -0.5, 0, 0.7, 1, 2, 3.9, 4, 8, 9, 15, 30], dtype=dtype
        )
        compare(poly(name).default, x, n, tol=LIMITS[dtype])

    @pytest.mark.parametrize("n", [-1, 0, 1, 2.5, 9, 1000])
    def test_number_of_degree(self, compare, name, n):
        x = torch.linspace(-0.9, 0.9, 12, dtype=torch.float64)
        compare(poly(name).n_scalar, x, n, tol=LIMITS[torch.float64])

    @pytest.mark.parametrize("x", [0, 1, -0.3])
    def test_number(self, compare, name, x):
        n = torch.arange(-1, 20)
        compare(poly(name).x_scalar, x, n, tol=LIMITS[torch.float32])

    @pytest.mark.parametrize("dtype", FLOATS)
    def test_edges(self, compare, name, dtype):
        x = torch.tensor([-INF, -3, -1, -0.0, 0, 0.5, 1, 3, INF], dtype=dtype)[:, None]
        n = torch.tensor([-INF, 0, 1, 2, 3, 7, 200, 1000, 1e20, INF, NAN], dtype=dtype)
        compare(poly(name).default, x, n, tol=LIMITS[dtype])

    def test_integers(self, compare, name):
        compare(poly(name).default, torch.arange(-3, 4)[:, None], torch.arange(-2, 9))


def test_chebyshev_next_to_one(compiled_rule):
    # torch's float32 acos has lost its digits here: the value is that of mpmath.
    x = torch.tensor([1 - 2.0**-23], dtype=torch.float32)
    rule = find_rule(aten.special_chebyshev_polynomial_w.n_scalar, "xla")
    assert compiled_rule(rule, x, 1000).item() == pytest.approx(
        1922.35227111993, rel=1e-5
    )


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_float32_stays_float32(name):
    rule = find_rule(poly(name).default, "xla")
    with jax.enable_x64(True):
        x = jax.numpy.ones(3, "float32")
        text = jax.jit(rule).lower(x, x).as_text()
    assert "stablehlo.while" in text
    assert "f64" not in text
    assert "custom_call" not in text

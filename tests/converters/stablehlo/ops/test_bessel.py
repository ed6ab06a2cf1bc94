from __future__ import annotations

import jax
import mpmath
import pytest
import torch

from tpu_export.converters.stablehlo.registry import find_rule

aten = torch.ops.aten
INF, NAN = float("inf"), float("nan")
FLOATS = [torch.float32, torch.float64]
NAMES = [
    "airy_ai",
    "bessel_j0",
    "bessel_j1",
    "bessel_y0",
    "bessel_y1",
    "erfcx",
    "modified_bessel_i0",
    "modified_bessel_i1",
    "modified_bessel_k0",
    "modified_bessel_k1",
    "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1",
    "spherical_bessel_j0",
]
# The argument of a sine is rounded to float32: x is 30 at most.
LIMITS = {torch.float32: (2e-5, 2e-6), torch.float64: (1e-11, 1e-14)}
EDGES = [-INF, -100, -27, -6.5, -2.09, -1, -0.0, 0, 1e-30, 1e-6, 0.5, 1, 2, 2.09, 5, 8]
EDGES += [8.33, 50, 90, 104, 750, 1e4, 1e7, 1e12, 1e25, INF, NAN]
# Where torch's float64 is exact too.
EXACT = {
    "airy_ai": mpmath.airyai,
    "erfcx": lambda x: mpmath.exp(x * x) * mpmath.erfc(x),
    "modified_bessel_i0": lambda x: mpmath.besseli(0, x),
    "modified_bessel_i1": lambda x: mpmath.besseli(1, x),
    "modified_bessel_k0": lambda x: mpmath.besselk(0, x),
    "modified_bessel_k1": lambda x: mpmath.besselk(1, x),
    "scaled_modified_bessel_k0": lambda x: mpmath.exp(x) * mpmath.besselk(0, x),
    "scaled_modified_bessel_k1": lambda x: mpmath.exp(x) * mpmath.besselk(1, x),
    "spherical_bessel_j0": lambda x: mpmath.sinc(x),
}


def overload(name):
    return getattr(aten, f"special_{name}").default


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", NAMES)
class TestFunctions:
    def test_grid(self, compare, name, dtype):
        compare(
            overload(name), torch.linspace(-30, 30, 301).to(dtype), tol=LIMITS[dtype]
        )

    def test_edges(self, compare, name, dtype):
        compare(overload(name), torch.tensor(EDGES, dtype=dtype), tol=LIMITS[dtype])


@pytest.mark.parametrize("name", NAMES)
def test_integers(compare, name):
    compare(overload(name), torch.arange(-5, 12), tol=LIMITS[torch.float32])


@pytest.mark.parametrize("name", EXACT)
def test_exact(compiled_rule, name):
    x = torch.tensor(
        [0.01, 0.3, 0.99, 1.01, 1.9, 2.2, 6.2, 6.4, 17.0], dtype=torch.float64
    )
    want = torch.tensor(
        [float(EXACT[name](v)) for v in x.tolist()], dtype=torch.float64
    )
    got = compiled_rule(find_rule(overload(name), "xla"), x)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", NAMES)
def test_float32_stays_float32(name):
    with jax.enable_x64(True):
        x = jax.numpy.ones(3, "float32")
        text = jax.jit(find_rule(overload(name), "xla")).lower(x).as_text()
    assert "f64" not in text
    assert "custom_call" not in text

from __future__ import annotations

import jax
import pytest
import scipy.special
import torch

from tpu_export.converters.stablehlo.registry import find_rule

aten = torch.ops.aten
INF, NAN = float("inf"), float("nan")
FLOATS = [torch.float32, torch.float64]
OPS = {aten.igamma.default: "gammainc", aten.igammac.default: "gammaincc"}
LIMITS = {torch.float32: (1e-4, 1e-5), torch.float64: (1e-9, 1e-9)}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", OPS)
class TestIncompleteGamma:
    def test_grid(self, compare, op, dtype):
        a = torch.logspace(-1, 3, 25, dtype=dtype)[:, None]
        x = torch.logspace(-2, 3.5, 60, dtype=dtype)
        compare(op, a, x, tol=LIMITS[dtype])

    def test_edges(self, compare, op, dtype):
        edges = torch.tensor([-INF, -1.0, -0.0, 0.0, 1.0, INF, NAN], dtype=dtype)
        compare(op, edges[:, None], edges)

    # Where torch has fewer digits: a large `a` near x, and Q of a small one.
    def test_digits(self, compiled_rule, op, dtype):
        a = torch.tensor([1e-6, 1e-3, 0.4, 20.5, 150, 1e3, 1e6, 1e8]).double()[:, None]
        x = torch.linspace(-4, 4, 33, dtype=torch.float64) * a**0.5 + a
        a, x = a.to(dtype), x.clamp_min(1e-6).to(dtype)
        exact = getattr(scipy.special, OPS[op])(a.double().numpy(), x.double().numpy())
        got = compiled_rule(find_rule(op, "xla"), a, x)
        rtol = 2e-3 if dtype == torch.float32 else 1e-8
        want = torch.as_tensor(exact).to(dtype)
        torch.testing.assert_close(got, want, rtol=rtol, atol=rtol * 1e-3)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves(compare, op, dtype):
    a, x = (torch.rand(2, 20) * 5).to(dtype)
    compare(op, a, x)


@pytest.mark.parametrize("op", OPS)
def test_float32_stays_float32(op):
    with jax.enable_x64(True):
        x = jax.numpy.ones(3, "float32")
        text = jax.jit(find_rule(op, "xla")).lower(x, x).as_text()
    assert "f64" not in text
    assert "custom_call" not in text

from __future__ import annotations

from functools import partial

import jax
import pytest
import torch

from tpu_export.converters.stablehlo.registry import find_rule

aten = torch.ops.aten
INF, NAN = float("inf"), float("nan")
FLOATS = [torch.float32, torch.float64]
# XLA evaluates in float32 what torch's Cephes code evaluates in double.
LIMITS = {torch.float32: (2e-5, 1e-6), torch.float64: (1e-9, 1e-12)}


@pytest.fixture
def close(compare):
    def body(op, *args, dtype):
        compare(op, *args, tol=LIMITS.get(dtype))

    return body


@pytest.mark.parametrize("dtype", FLOATS)
class TestZeta:
    def test_grid(self, close, dtype):
        s = torch.tensor([1.3, 2, 2.7, 3, 4, 7, 20], dtype=dtype)[:, None]
        close(
            aten.special_zeta.default,
            s,
            torch.linspace(0.3, 9, 50).to(dtype),
            dtype=dtype,
        )

    def test_negative(self, close, dtype):
        s = torch.tensor([2, 2.5, 3, 4, 5], dtype=dtype)[:, None]
        q = torch.tensor([-0.2, -0.5, -1.7, -2.5, -9.25, -1000.3]).to(dtype)
        close(aten.special_zeta.default, s, q, dtype=dtype)

    def test_edges(self, close, dtype):
        s = torch.tensor([-INF, -1, 0.5, 1, 1.5, 2, 3, NAN], dtype=dtype)[:, None]
        q = torch.tensor([-INF, -3, -2.5, -0.0, 0, 1, 5, NAN], dtype=dtype)
        close(aten.special_zeta.default, s, q, dtype=dtype)

    def test_scalars(self, close, dtype):
        x = torch.tensor([1.5, 2, 3], dtype=dtype)
        close(aten.special_zeta.self_scalar, 3, x, dtype=dtype)
        close(aten.special_zeta.other_scalar, x, 2.5, dtype=dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", range(7))
def test_polygamma(compare, n, dtype):
    x = torch.cat([torch.linspace(-20, 20, 90) + 0.013, torch.tensor([0.0, NAN])])
    # torch's trigamma has an error of 5e-10; digamma crosses zero.
    limits = {torch.float64: (1e-9, 1e-12), torch.float32: (2e-5, 2e-5)}
    compare(aten.polygamma.default, n, x.to(dtype), tol=limits.get(dtype))


@pytest.mark.parametrize("n", [2, 3, 4])
def test_polygamma_poles(compare, n):
    compare(aten.polygamma.default, n, torch.tensor([-INF, -3.0, -1.0, -0.0, 0.0]))


@pytest.mark.parametrize("n", range(4))
def test_polygamma_of_halves(compare, n):
    compare(aten.polygamma.default, n, (torch.rand(30) * 9).bfloat16())


@pytest.mark.parametrize("n", [0, 1, 2])
def test_polygamma_of_integers(compare, n):
    compare(aten.polygamma.default, n, torch.arange(1, 9), tol=LIMITS[torch.float32])


@pytest.mark.parametrize("n", [34, 40, 200])
def test_polygamma_beyond_factorials(compare, n):
    compare(aten.polygamma.default, n, torch.tensor([0.5, 3.0, 200.0]))


@pytest.mark.parametrize("n", [0, 1, 3])
def test_float32_stays_float32(n):
    with jax.enable_x64(True):
        x = jax.numpy.ones(3, "float32")
        rule = find_rule(aten.polygamma.default, "xla")
        text = jax.jit(partial(rule, n)).lower(x).as_text()
        rule = find_rule(aten.special_zeta.default, "xla")
        text += jax.jit(rule).lower(x, x).as_text()
    assert "f64" not in text
    assert "custom_call" not in text


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normal_distribution_in_its_tails(compare, dtype):
    x = torch.tensor([-100.0, -20, -3, -1, -0.5, 0, 0.5, 1, 3, 5, 7.25, 9, INF, -INF])
    compare(aten.special_log_ndtr.default, x.to(dtype), tol=(2e-6, 0))


def test_entropy(compare, compiled_rule):
    x = torch.tensor([-1.0, -0.0, 0.0, 0.5, 3.0, INF, NAN])
    compare(aten.special_entr.default, x)
    got = compiled_rule(find_rule(aten.special_entr.default, "xla"), x)
    assert not got[1:3].signbit().any()

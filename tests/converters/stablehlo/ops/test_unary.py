from __future__ import annotations

import pytest
import torch

aten = torch.ops.aten
INF, NAN = float("inf"), float("nan")

EDGES = torch.tensor([-INF, -3.5, -2.5, -1, -0.3, -0.0, 0, 0.3, 1, 2.5, 3.5, INF, NAN])
NAMES = (  # noqa: SIM905
    "abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad erf erfc exp exp2 expm1 "
    "floor frac log log10 log1p log2 neg rad2deg reciprocal round rsqrt sgn sign signbit "
    "sin sinc sinh sqrt square tan trunc nan_to_num positive"
).split()
INTEGER = (  # noqa: SIM905
    "abs ceil cos exp floor neg reciprocal round sgn sign signbit sqrt square"
).split()


def overload(name):
    return getattr(aten, name).default


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", NAMES)
def test_floats(compare, name, dtype):
    compare(overload(name), (torch.randn(4, 5) * 2).to(dtype))


@pytest.mark.parametrize("name", NAMES)
def test_edges(compare, name):
    compare(overload(name), EDGES)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8])
@pytest.mark.parametrize("name", INTEGER)
def test_integers(compare, name, dtype):
    compare(overload(name), torch.arange(-4, 5).to(dtype))


@pytest.mark.parametrize("name", ["lgamma", "digamma", "i0", "erfinv"])
def test_special(compare, name):
    compare(overload(name), torch.rand(9) * 0.9 + 0.05, tol=(1e-4, 1e-4))


@pytest.mark.parametrize("decimals", [2, 0, -1])
def test_round_decimals(compare, decimals):
    compare(aten.round.decimals, torch.randn(20) * 30, decimals=decimals)


@pytest.mark.parametrize("eps", [None, 0.1])
def test_logit(compare, eps):
    compare(aten.logit.default, torch.rand(9), eps)

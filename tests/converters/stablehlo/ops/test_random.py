"""Draws differ from torch's number by number; shape, dtype, range and distribution do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import torch

from tpu_export.converters.stablehlo.context import LoweringContext, lowering
from tpu_export.converters.stablehlo.registry import find_rule

aten = torch.ops.aten
N = 20_000
F16, BF16, F64 = torch.float16, torch.bfloat16, torch.float64
X, P = torch.zeros(N), torch.full((N,), 0.3)
H = X.to(BF16)
MEANS = torch.linspace(-3, 3, N)

CASES = [
    (aten.rand.default, ([N],), {}),
    (aten.rand.default, ([4, N // 4],), {"dtype": F64}),
    (aten.rand.default, ([N],), {"dtype": F16}),
    (aten.rand_like.default, (X.double(),), {}),
    (aten.rand_like.default, (X,), {"dtype": BF16}),
    (aten.randn.default, ([N],), {}),
    (aten.randn.default, ([2, N // 2],), {"dtype": BF16}),
    (aten.randn_like.default, (X,), {}),
    (aten.randint.default, (10, [N]), {}),
    (aten.randint.low, (-5, 3, [N]), {"dtype": torch.int32}),
    (aten.randint.low, (0, 2, [N]), {"dtype": torch.float32}),
    (aten.randint.low, (-(2**40), 2**40, [N]), {}),
    (aten.randint_like.default, (X.long(), 7), {}),
    (aten.randint_like.low_dtype, (X, -2, 7), {"dtype": torch.int8}),
    (aten.randperm.default, (N,), {}),
    (aten.randperm.default, (N,), {"dtype": torch.int32}),
    (aten.bernoulli.default, (P,), {}),
    (aten.bernoulli.p, (X, 0.7), {}),
    (aten.bernoulli_.float, (X, 0.7), {}),
    (aten.bernoulli.Tensor, (X.long(), P), {}),
    (aten.bernoulli_.Tensor, (X, P), {}),
    (aten.uniform.default, (X, -2.0, 3.0), {}),
    (aten.uniform_.default, (H,), {}),
    (aten.normal_.default, (X, 2.0, 0.5), {}),
    (aten.normal_functional.default, (X.double(),), {}),
    (aten.normal.Tensor_float, (MEANS, 0.5), {}),
    (aten.normal.float_Tensor, (1.0, P), {}),
    (aten.normal.Tensor_Tensor, (MEANS, P), {}),
    (aten.normal.float_float, (1.0, 2.0, [N]), {}),
    (aten.normal.float_float, (1.0, 2.0, [N]), {"dtype": F64}),
    (aten.exponential.default, (X, 2.0), {}),
    (aten.exponential_.default, (X,), {}),
    (aten.poisson.default, (P * 10,), {}),
    (aten.cauchy.default, (X, 1.0, 2.0), {}),
    (aten.log_normal.default, (X, 0.5, 0.25), {}),
    (aten.geometric.default, (X, 0.3), {}),
    (aten.geometric.default, (X.long(), 0.8), {}),
    (aten.rand.default, ([N],), {"dtype": torch.complex64}),
    (aten.randn.default, ([N],), {"dtype": torch.complex64}),
    (aten.uniform_.default, (X + 0j, -2.0, 3.0), {}),
    (aten.normal_.default, (X + 0j, 2.0, 0.5), {}),
    (aten.normal.float_float, (1.0, 2.0, [N]), {"dtype": torch.complex64}),
    (aten.normal.Tensor_float, (MEANS * (1 + 2j), 0.5), {}),
]  # fmt: skip
IDS = [f"{i}-{case[0]}" for i, case in enumerate(CASES)]


@pytest.fixture
def draw(compiled_rule: Any) -> Callable[..., torch.Tensor]:
    """draw(case, seed): what the rule gives from that seed."""

    def body(case: Any, seed: int) -> torch.Tensor:
        op, args, kwargs = case
        key = jax.numpy.array([0, seed], "uint32")
        with lowering(LoweringContext(key=key)) as context:
            values = compiled_rule(find_rule(op, "xla"), *args, **kwargs)
            assert context.drew
        return values

    return body


def parts(x: torch.Tensor) -> list[torch.Tensor]:
    """Return what is distributed by itself: a complex draw is two real ones."""
    return [x.real, x.imag] if x.is_complex() else [x]


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """Return the largest distance between two empirical distribution functions."""
    a, b = (np.sort(x.double().numpy().reshape(-1)) for x in (a, b))
    both = np.concatenate([a, b])
    places = (np.searchsorted(x, both, side="right") / len(x) for x in (a, b))
    return float(np.abs(np.subtract(*places)).max())


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_draws_are_distributed_as_torch_draws(draw, case) -> None:
    op, args, kwargs = case
    own = [x.clone() if isinstance(x, torch.Tensor) else x for x in args]
    want, got = op(*own, **kwargs), draw(case, 1)
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    # 1.95 * sqrt(2 / N): equal distributions are farther apart once in a thousand draws.
    for ours, theirs in zip(parts(got), parts(want), strict=True):
        assert distance(ours, theirs) < 0.0195


@pytest.mark.parametrize("case", CASES[::3], ids=IDS[::3])
def test_the_seed_decides_and_keys_differ(draw, case) -> None:
    first = draw(case, 1)
    assert torch.equal(draw(case, 1), first)
    assert not torch.equal(draw(case, 2), first)


def test_the_distance_sees_another_distribution() -> None:
    assert distance(torch.rand(N), torch.rand(N) * 1.05) > 0.0195


def test_ranges(draw) -> None:
    uniform = draw((aten.rand.default, ([N],), {"dtype": F16}), 3)
    assert uniform.min() >= 0
    assert uniform.max() < 1
    whole = draw((aten.randint.low, (-5, 3, [N]), {}), 3)
    assert set(whole.tolist()) == set(range(-5, 3))
    order = draw((aten.randperm.default, (100,), {}), 3)
    assert sorted(order.tolist()) == list(range(100))
    trials = draw((aten.geometric.default, (X, 0.9), {}), 3)
    assert trials.min() == 1


WEIGHTS = torch.tensor([[0.1, 0.0, 0.6, 0.3], [5.0, 5.0, 0.0, 0.0]])


def test_multinomial_with_replacement(draw) -> None:
    got = draw((aten.multinomial.default, (WEIGHTS, N, True), {}), 1)
    assert got.dtype == torch.int64
    assert got.shape == (2, N)
    shares = torch.stack([(got == k).double().mean(1) for k in range(4)], 1)
    expected = (WEIGHTS / WEIGHTS.sum(1, keepdim=True)).double()
    torch.testing.assert_close(shares, expected, atol=0.015, rtol=0)
    assert not (got[0] == 1).any()


def test_multinomial_without_replacement(draw) -> None:
    rows = WEIGHTS[:1].expand(N, 4)
    got = draw((aten.multinomial.default, (rows, 3), {}), 1)
    assert (got.sort(1).values == torch.tensor([0, 2, 3])).all()
    want = torch.multinomial(rows, 3)
    for place in range(3):
        assert distance(got[:, place], want[:, place]) < 0.0195


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_certain_draws(draw, p) -> None:
    got = draw((aten.bernoulli.p, (X, p), {}), 1)
    assert (got == p).all()


def test_nothing_to_draw(draw) -> None:
    for op, args in ((aten.rand.default, ([0, 3],)), (aten.randint.default, (5, [0]))):
        assert draw((op, args, {}), 1).numel() == 0

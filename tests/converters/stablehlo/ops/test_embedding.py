from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
import torch
from torch._subclasses import FakeTensorMode

from tpu_export.converters.stablehlo.errors import UnsupportedOptionError
from tpu_export.converters.stablehlo.registry import find_rule

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def _wide():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 0), (2, 3, 4)])
def test_embedding(compare, shape, dtype):
    indices = torch.randint(0, 7, shape, dtype=dtype)
    compare(aten.embedding.default, torch.randn(7, 5), indices)
    compare(aten.embedding.default, torch.randn(7, 5).bfloat16(), indices, 2)


BAGS = [
    ([0, 3, 5], False),
    ([0, 3, 3, 8], False),  # an empty bag, and one at the end
    ([0, 0, 2], False),
    ([0, 3, 8], True),
]


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize(("offsets", "last"), BAGS)
@pytest.mark.parametrize("padding_idx", [-1, 2])
def test_embedding_bag(mode, offsets, last, padding_idx):
    weight, indices = torch.randn(7, 5), torch.tensor([1, 2, 2, 6, 0, 2, 3, 4])
    scales = torch.randn(8) if mode == 0 else None
    args = (False, mode, False, scales, last, padding_idx)
    op = aten._embedding_bag_forward_only.default
    want = op(weight, indices, torch.tensor(offsets), *args)
    arrays = (weight.numpy(), indices.numpy(), torch.tensor(offsets).numpy())
    scale = None if scales is None else scales.numpy()
    rule = find_rule(op, "xla")
    got = rule(*map(_jax, arrays), *args[:3], _jax(scale), last, padding_idx)
    torch.testing.assert_close(torch.tensor(got[0].tolist()), want[0])
    with FakeTensorMode() as mode_:
        fakes = [mode_.from_tensor(t) for t in (weight, indices, torch.tensor(offsets))]
        fake = None if scales is None else mode_.from_tensor(scales)
        metas = op(*fakes, *args[:3], fake, *args[4:])
    assert [g.shape for g in got] == [tuple(m.shape) for m in metas]


def _jax(x):
    return None if x is None else jnp.asarray(x)


def test_embedding_bag_packet_takes_no_padding(compare):
    weight, indices = torch.randn(7, 5), torch.tensor([1, 2, 6])
    rest = (False, 0, False, None, False, None)
    op = aten.embedding_bag.padding_idx
    want = op(weight, indices, torch.tensor([0, 2]), *rest)[0]
    got = find_rule(op, "xla")(
        *map(_jax, (weight.numpy(), indices.numpy(), [0, 2])), *rest
    )
    torch.testing.assert_close(torch.tensor(got[0].tolist()), want)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weighted_halves_are_rounded_once(check_module, dtype):
    """(1 + e)^2 - (1 + 2e) is e^2; halves would round it away before the sum."""
    eps = torch.finfo(dtype).eps
    bag = torch.nn.EmbeddingBag(2, 1, mode="sum", dtype=dtype)
    with torch.no_grad():
        bag.weight.copy_(torch.tensor([[64 * (1 + eps)], [64 * (1 + 2 * eps)]]))
    weights = torch.tensor([64 * (1 + eps), -64.0], dtype=dtype)
    check_module(bag, (torch.tensor([0, 1]), torch.tensor([0]), weights))


class _OddBags(torch.nn.Module):
    """Bags over a table with rows of infinity and NaN, some of which nothing reads."""

    def __init__(self, dtype=torch.float32, **options):
        super().__init__()
        rows = torch.randn(8, 3, dtype=dtype)
        rows[1], rows[2], rows[3] = torch.nan, torch.inf, -torch.inf
        self.table = torch.nn.Parameter(rows)
        self.options = options

    def forward(self, ids, offsets=None, scales=None):
        bags = torch.nn.functional.embedding_bag
        return bags(ids, self.table, offsets, per_sample_weights=scales, **self.options)


ODD_BAGS = [
    (torch.tensor([[0, 4], [1, 5], [5, 1], [2, 6], [3, 2], [3, 1], [7, 7]]),),
    (torch.tensor([0, 4, 1, 2, 2, 3, 7, 5]), torch.tensor([0, 2, 3, 3, 5, 6, 6])),
    (torch.tensor([0, 4, 2, 5, 6, 1]), torch.tensor([0, 2, 3, 5])),  # the last is used
]


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("args", ODD_BAGS)
@pytest.mark.parametrize("padding_idx", [None, 1, 2])
def test_odd_rows_stay_in_their_bags(check_module, mode, args, padding_idx):
    check_module(_OddBags(mode=mode, padding_idx=padding_idx), args)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_odd_rows_and_the_last_offset(check_module, mode):
    ids = torch.tensor([0, 4, 5, 2, 6, 1])
    model = _OddBags(mode=mode, include_last_offset=True)
    check_module(model, (ids, torch.tensor([0, 3, 4, 6])))


def test_rows_behind_the_last_offset_are_in_no_bag(check_module):
    """Torch says that there are none, and agrees with itself in this mode only."""
    args = (torch.tensor([0, 4, 5, 6, 1, 2]), torch.tensor([0, 2, 4]))
    check_module(_OddBags(mode="sum", include_last_offset=True), args)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(
    "weights", [[1.0, 0, 2, 1, 1], [torch.inf, 1, 1, torch.nan, 1]]
)
def test_odd_weights_stay_in_their_bags(check_module, dtype, weights):
    scales = torch.tensor(weights, dtype=dtype)
    args = (torch.tensor([0, 2, 4, 5, 6]), torch.tensor([0, 1, 2, 4]), scales)
    check_module(_OddBags(dtype, mode="sum"), args)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_one_hot(compare, shape):
    compare(aten.one_hot.default, torch.randint(0, 4, shape), 4)


def test_one_hot_needs_its_classes():
    with pytest.raises(UnsupportedOptionError, match="number of classes"):
        find_rule(aten.one_hot.default, "xla")(_jax([1, 2]))


@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_in_a_module(check_module, mode, last, trained):
    """The sizes of results that nobody reads depend on whether the weight is trained."""
    bag = torch.nn.EmbeddingBag(7, 5, mode=mode, include_last_offset=last)
    bag.weight.requires_grad_(trained)
    check_module(bag, (torch.tensor([1, 2, 2, 6]), torch.tensor([0, 2, 2, 4])))


@pytest.mark.parametrize("norm_type", [1.0, 2.0, float("inf")])
def test_renorm_shortens_the_rows_that_are_read(compare, norm_type):
    weight, rows = torch.randn(5, 4) * 2, torch.tensor([[0, 3], [3, 1]])
    compare(aten.embedding_renorm.default, weight, rows, 1.5, norm_type)

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

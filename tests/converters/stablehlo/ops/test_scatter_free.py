"""Writes by index for LiteRT: right without a scatter; tests/converters/litert runs them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
import torch

from tpu_export.converters.stablehlo.context import LoweringContext, lowering
from tpu_export.converters.stablehlo.ops import scatter_free
from tpu_export.converters.stablehlo.ops.sorting import LiteRtUnsupportedError
from tpu_export.converters.stablehlo.registry import find_rule

aten = torch.ops.aten
INF, NAN = float("inf"), float("nan")
X = torch.randn(4, 5)
CUBE = torch.randn(2, 4, 3)
INDEX = torch.tensor([[0, 2, 0], [3, 3, 1]])
TWICE = torch.tensor([1, 1, -2])
SRC = torch.randn(2, 3)
ODD = torch.tensor([[INF, 1.0, -INF], [NAN, INF, 2.0]])
BIG = torch.full((4, 5), 2**40 + 1)
CASES = [
    (aten.scatter.src, X, 1, torch.tensor([[0, 2], [3, 1]]), SRC),
    (aten.scatter.value, X, 0, INDEX, 2.5),
    (aten.scatter.value, torch.tensor(1.0), 0, torch.tensor(0), 2.5),
    (aten.scatter_add.default, X, 0, INDEX, SRC),
    (aten.scatter_add.default, X, 0, INDEX, ODD),
    (aten.scatter_add.default, BIG, 0, INDEX, BIG[:2, :3].clone()),
    (aten.scatter_add.default, X > 0, 0, INDEX, SRC > 0),
    (aten.scatter_add.default, X, 0, INDEX[:, :0], SRC),
    (aten.index_add.default, CUBE, 1, torch.tensor([1, 1]), torch.randn(2, 2, 3)),
    (aten.index_add.default, X, 0, torch.tensor([1, 1]), ODD[:, [0, 1, 2, 0, 1]]),
    (aten.index_copy.default, CUBE, 1, torch.tensor([2, 0]), torch.randn(2, 2, 3)),
    (aten.index_fill.int_Scalar, X, 1, torch.tensor([0, -1]), 7),
    (aten.index_put.default, X, [TWICE], torch.randn(5)),
    (aten.index_put.default, X, [TWICE], torch.randn(3, 5), True),
    (aten.index_put.default, X, [TWICE, TWICE], torch.randn(3), True),
    (aten.index_put.default, X, [None, TWICE], torch.ones(()), True),
    (aten.index_put.default, CUBE, [TWICE * 0, None, TWICE], torch.ones(3, 4), True),
    (aten.index_put.default, CUBE, [None, TWICE[:, None], TWICE], torch.ones(3), True),
    (aten.index_put.default, BIG.to(torch.int8), [TWICE], BIG[0].to(torch.int8), True),
    (aten.put.default, X, TWICE, torch.randn(3), True),
    (aten.slice_scatter.default, X, torch.randn(4, 3), 1, 0, 5, 2),
    (aten.diagonal_scatter.default, X, torch.randn(4), 1),
    (aten.as_strided_scatter.default, X, torch.randn(2, 2), (2, 2), (5, 2), 1),
]


@pytest.fixture(autouse=True)
def _for_litert():
    with lowering(LoweringContext(target="litert")):
        yield


@pytest.mark.parametrize("case", CASES, ids=lambda c: str(c[0]))
def test_writes(compare, case):
    compare(*case, target="litert")


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize(("x", "src"), [(X, SRC), (BIG, INDEX), (X, ODD), (X - INF, X)])
def test_reductions(compare, x, src, reduce, include_self):
    args = (x, 0, INDEX, src, reduce)
    compare(aten.scatter_reduce.two, *args, include_self=include_self, target="litert")


def test_there_is_no_scatter():
    def write(x, index, src):
        y = find_rule(aten.scatter_add.default, "litert")(x, 0, index, src)
        y = find_rule(aten.index_put.default, "litert")(y, [index[0]], src[0, 0])
        return find_rule(aten.slice_scatter.default, "litert")(y, y[:, :3], 1, 0, 5, 2)

    arrays = [jnp.asarray(t.numpy()) for t in (X, INDEX, SRC)]
    assert "scatter" not in str(jax.make_jaxpr(write)(*arrays))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_too_many_comparisons_are_refused(dtype):
    rule = find_rule(aten.index_add.default, "litert")

    def size(rows):
        x = jax.ShapeDtypeStruct((2**12, rows), jnp.dtype(str(dtype)[6:]))
        index = jax.ShapeDtypeStruct((2**12,), jnp.int32)
        return jax.eval_shape(lambda a, i: rule(a, 0, i, a), x, index)

    assert scatter_free.MAX_PAIRS == 2**24
    assert size(1).shape == (2**12, 1)
    if dtype == torch.float32:  # a product: rows cost no comparison
        assert size(2).shape == (2**12, 2)
        return
    with pytest.raises(LiteRtUnsupportedError, match="4096 places by 4096 indices"):
        size(2)


def test_sizes_must_be_known():
    rule = find_rule(aten.index_fill.int_Scalar, "litert")
    (n,) = jax.export.symbolic_shape("n")
    x = jax.ShapeDtypeStruct((n, 3), jnp.float32)
    index = jax.ShapeDtypeStruct((2,), jnp.int32)
    with pytest.raises(LiteRtUnsupportedError, match="dynamic size"):
        jax.export.export(jax.jit(lambda a, i: rule(a, 0, i, 1)))(x, index)

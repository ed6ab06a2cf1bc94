from __future__ import annotations

import jax
import pytest
import torch

from tpu_export.converters.stablehlo.registry import find_rule

aten = torch.ops.aten
X = torch.randn(4, 5)
INDEX = torch.tensor([[0, 2, 0], [3, 3, 1]])
SRC = torch.randn(2, 3)
COUNTS = torch.randint(9, (4, 5))
MASK = X > 0
CASES = [
    (aten.scatter.src, X, 1, torch.tensor([[0, 2], [3, 1]]), SRC),
    (aten.scatter.value, X, 0, INDEX, 2.5),
    (aten.scatter.reduce, X, 0, INDEX, SRC),
    (aten.scatter_add.default, X, 0, INDEX, SRC),
    (aten.index_add.default, X, 1, torch.tensor([1, 1]), torch.randn(4, 2)),
    (aten.index_copy.default, X, 0, torch.tensor([2, 0]), torch.randn(2, 5)),
    (aten.index_fill.int_Scalar, X, 1, torch.tensor([0, -1]), 7),
    (aten.index_put.default, X, [torch.tensor([1, -1])], torch.randn(5)),
    (aten.index_put.default, X, [None, torch.tensor([1, 1])], torch.ones(()), True),
    (aten.index_put.default, X, [MASK], torch.tensor(2.0)),
    (aten.masked_scatter.default, X, MASK, torch.randn(30)),
    (aten.masked_scatter.default, X, X.isnan(), torch.empty(0)),
    (aten.put.default, X, torch.tensor([0, -1]), torch.randn(2)),
    (aten.select_scatter.default, X, torch.randn(4), 1, -1),
    (aten.slice_scatter.default, X, torch.randn(4, 2), 1, 1, 3),
    (aten.slice_scatter.default, X, torch.randn(4, 3), 1, 0, 5, 2),
    (aten.diagonal_scatter.default, X, torch.randn(4), 1),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: str(c[0]))
def test_scattering(compare, case):
    kwargs = {"reduce": "multiply"} if case[0] is aten.scatter.reduce else {}
    compare(*case, **kwargs)


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize(("x", "src"), [(X, SRC), (COUNTS, COUNTS[:2, :3].clone())])
def test_scatter_reduce(compare, x, src, reduce, include_self):
    args = (x, 0, INDEX, src, reduce)
    compare(aten.scatter_reduce.two, *args, include_self=include_self)


@pytest.mark.parametrize(
    ("shape", "mask", "values"),
    [
        ((4, 5), MASK, torch.tensor(2.0)),
        ((4, 5), MASK, torch.randn(int(MASK.sum()))),
        ((4, 5), MASK[:, 0], torch.randn(5)),
        ((4, 5), MASK[:, 0], torch.randn(int(MASK[:, 0].sum()), 5)),
        ((4, 5), MASK[:, 0], torch.randn(1, 5)),
        ((4, 5), X.isnan(), torch.empty(0)),
        ((4, 5), X[:, 0].isnan(), torch.empty(0, 5)),
    ],
)
def test_traced_masks(shape, mask, values):
    x = torch.zeros(shape)
    want = aten.index_put.default(x, [mask], values)
    rule = find_rule(aten.index_put.default, "xla")
    arrays = [jax.numpy.array(t.numpy()) for t in (x, mask, values)]
    got = jax.jit(lambda a, m, v: rule(a, [m], v))(*arrays)
    torch.testing.assert_close(torch.from_numpy(jax.device_get(got).copy()), want)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_accumulate_in_float32(compare, dtype):
    x, index = torch.zeros(1, dtype=dtype), torch.zeros(4096, dtype=torch.int64)
    ones = torch.ones(4096, dtype=dtype)
    compare(aten.scatter_add.default, x, 0, index, ones)
    compare(aten.scatter_reduce.two, x, 0, index, ones, "sum")
    compare(aten.scatter_reduce.two, x, 0, index, ones, "mean")
    compare(aten.index_add.default, x[:, None], 0, index, ones[:, None])
    compare(aten.index_add.default, x, 0, index, ones)  # one by one in one dimension
    compare(aten.index_put.default, x, [index], ones, True)

from __future__ import annotations

import jax
import pytest
import torch
from jax import export

from tpu_export.converters.stablehlo.registry import find_rule

aten = torch.ops.aten
SHAPES = [(), (3,), (2, 3, 4), (2, 0, 4)]


def call(op, *args):
    return find_rule(op, "xla")(*args)


@pytest.mark.parametrize("shape", SHAPES)
def test_sizes(shape):
    x, t = jax.numpy.zeros(shape), torch.zeros(shape)
    for op in (aten.sym_size.default, aten.size.default):
        assert call(op, x) == list(t.shape)
    for op in (aten.sym_numel.default, aten.numel.default):
        assert call(op, x) == t.numel()
    assert call(aten.sym_storage_offset.default, x) == 0


@pytest.mark.parametrize("shape", [(3,), (2, 3, 4)])
def test_one_size_and_stride(shape):
    x, t = jax.numpy.zeros(shape), torch.zeros(shape)
    for dim in range(-len(shape), len(shape)):
        assert call(aten.sym_size.int, x, dim) == t.size(dim)
        assert call(aten.size.int, x, dim) == t.size(dim)
        assert call(aten.sym_stride.int, x, dim) == t.stride(dim)
        assert call(aten.stride.int, x, dim) == t.stride(dim)


def test_dynamic_sizes_are_expressions():
    b, s = export.symbolic_shape("b, s")
    found = {}

    def ask(x):
        found["size"] = call(aten.sym_size.int, x, -2)
        found["numel"] = call(aten.sym_numel.default, x)
        found["stride"] = call(aten.sym_stride.int, x, 0)
        return x

    jax.eval_shape(ask, jax.ShapeDtypeStruct((b, 2 * s, 3), "float32"))
    assert found == {"size": 2 * s, "numel": 6 * b * s, "stride": 6 * s}


class Sizes(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[object, ...]:
        n, m = x.shape
        rows = torch.arange(n * m, dtype=x.dtype).view(n, m)
        return x + rows, n, x.numel(), m, x.stride(0), max(n, 3) + n // 2


def test_sizes_as_results_and_operands(check_module):
    check_module(
        Sizes(),
        (torch.randn(4, 3),),
        more=[(torch.randn(1, 3),), (torch.randn(7, 3),)],
        dynamic_shapes=({0: torch.export.Dim("rows", min=1, max=32)},),
    )

from __future__ import annotations

import pytest
import torch

aten = torch.ops.aten
BF16 = torch.bfloat16


def r(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(dtype)


def i(*shape, dtype=torch.int64):
    return torch.randint(-5, 5, shape, dtype=dtype)


@pytest.mark.parametrize(
    ("op", "args"),
    [
        (aten.linear.default, (r(2, 3, 5), r(4, 5), r(4))),
        (aten.linear.default, (r(2, 3, 5), r(4, 5))),
        (aten.linear.default, (r(5), r(4, 5), r(4))),
        (aten.linear.default, (r(0, 5), r(4, 5), r(4))),
        (aten.linear.default, (r(3, 0), r(4, 0), r(4))),
        (
            aten.linear.default,
            (r(2, 5, dtype=BF16), r(4, 5, dtype=BF16), r(4).to(BF16)),
        ),
        (aten.linear.default, (r(2, 5).double(), r(4, 5).double())),
        (aten.matmul.default, (r(3), r(3))),
        (aten.matmul.default, (r(3), r(3, 4))),
        (aten.matmul.default, (r(2, 3), r(3))),
        (aten.matmul.default, (r(2, 3), r(3, 4))),
        (aten.matmul.default, (r(5, 2, 3), r(3, 4))),
        (aten.matmul.default, (r(5, 2, 3), r(3))),
        (aten.matmul.default, (r(3), r(5, 3, 4))),
        (aten.matmul.default, (r(6, 2, 3), r(5, 6, 3, 4))),
        (aten.matmul.default, (r(1, 6, 2, 3), r(5, 1, 3, 4))),
        (aten.matmul.default, (i(2, 3), i(3, 4))),
        (aten.matmul.default, (r(2, 64).to(BF16), r(64, 4).to(BF16))),
        (aten.mm.default, (r(2, 3), r(3, 4))),
        (aten.mm.default, (i(2, 3, dtype=torch.int8), i(3, 4, dtype=torch.int8))),
        (aten.mm.default, (r(2, 0), r(0, 4))),
        (aten.bmm.default, (r(5, 2, 3), r(5, 3, 4))),
        (aten.mv.default, (r(2, 3), r(3))),
        (aten.dot.default, (r(3), r(3))),
        (aten.dot.default, (i(3), i(3))),
        (aten.vdot.default, (r(3, dtype=torch.complex64), r(3, dtype=torch.complex64))),
        (aten.outer.default, (r(3), r(2))),
        (aten.ger.default, (r(3), r(2))),
        (aten.inner.default, (r(2, 3), r(4, 3))),
        (aten.inner.default, (r(2, 3), r(()))),
        (aten.kron.default, (r(2, 3), r(4, 2))),
        (aten.tensordot.default, (r(2, 3, 4), r(4, 3, 5), [1, 2], [1, 0])),
        (aten.tensordot.default, (r(2, 3, 4), r(4, 3, 5), [-1], [0])),
        (aten.tensordot.default, (r(2, 1), r(4, 3), [1], [0])),
        (aten.bilinear.default, (r(2, 3), r(2, 4), r(5, 3, 4), r(5))),
        (aten.bilinear.default, (r(2, 6, 3), r(2, 6, 4), r(5, 3, 4))),
        (
            aten._trilinear.default,
            (r(2, 3), r(5, 3, 4), r(2, 4), [1, 3], [0], [1, 2], [2, 3]),
        ),
        (aten.chain_matmul.default, ([r(2, 3), r(3, 4), r(4, 5)],)),
        (aten.linalg_multi_dot.default, ([r(2, 3), r(3, 4), r(4)],)),
    ],
)
def test_product(compare, op, args):
    compare(
        op, *args, tol=(1.6e-2, 1e-2) if args[0:1] and _half(args[0]) else (1e-5, 1e-5)
    )


def _half(x):
    return isinstance(x, torch.Tensor) and x.dtype == BF16


@pytest.mark.parametrize(
    ("op", "args", "kwargs"),
    [
        (aten.addmm.default, (r(4), r(2, 3), r(3, 4)), {}),
        (aten.addmm.default, (r(2, 1), r(2, 3), r(3, 4)), {"beta": 0.5, "alpha": 2}),
        (aten.addmm.default, (r(2, 4) * float("nan"), r(2, 3), r(3, 4)), {"beta": 0}),
        (aten.addmm.default, (i(4), i(2, 3), i(3, 4)), {"alpha": 3}),
        (aten.addmm.default, (r(4), r(2, 0), r(0, 4)), {}),
        (aten.baddbmm.default, (r(5, 2, 4), r(5, 2, 3), r(5, 3, 4)), {"beta": 2}),
        (aten.baddbmm.default, (r(4), r(5, 2, 3), r(5, 3, 4)), {}),
        (aten.addbmm.default, (r(2, 4), r(5, 2, 3), r(5, 3, 4)), {"alpha": 0.1}),
        (aten.addmv.default, (r(2), r(2, 3), r(3)), {"beta": 0.2}),
        (aten.addr.default, (r(2, 3), r(2), r(3)), {"alpha": 2}),
    ],
)
def test_product_added(compare, op, args, kwargs):
    compare(op, *args, tol=(1e-5, 1e-5), **kwargs)


@pytest.mark.parametrize(
    ("equation", "tensors"),
    [
        ("ij,jk->ik", (r(2, 3), r(3, 4))),
        ("ij, jk", (r(2, 3), r(3, 4))),
        ("bhqd,bhkd->bhqk", (r(2, 3, 4, 5), r(2, 3, 6, 5))),
        ("...ij,...jk->...ik", (r(2, 3, 4), r(4, 5))),
        ("...d,d->...d", (r(2, 3, 4), r(4))),
        ("ii->i", (r(3, 3),)),
        ("ii", (r(3, 3),)),
        ("i,j,k->kji", (r(2), r(3), r(4))),
        ("bij,bjk", (r(1, 2, 3), r(5, 3, 4))),
        ("Ab,bC->CA", (r(2, 3), r(3, 4))),
        ("ij->", (r(2, 3),)),
    ],
)
def test_einsum(compare, equation, tensors):
    compare(aten.einsum.default, equation, list(tensors), tol=(1e-5, 1e-5))


def test_integer_products(compare):
    x = torch.randint(-128, 128, (24, 32), dtype=torch.int8)
    y = torch.randint(-128, 128, (32, 16), dtype=torch.int8)
    compare(aten._int_mm.default, x, y)
    wide, scales = torch.randn(24, 32).bfloat16(), torch.rand(16).bfloat16()
    compare(aten._weight_int8pack_mm.default, wide, y.T.contiguous(), scales)

"""Branches and loops: right on either side, for any number of trips, and native on TPU."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.export import Dim

from tpu_export.converters.stablehlo.errors import UnsupportedWriteError
from tpu_export.converters.tpu.compile import compile_program
from tpu_export.converters.tpu.topologies import parse_topology
from tpu_export.exporter.refusals import NotExportableError

POSITIVE = torch.rand(3, 4) + 0.1
ROWS = ((POSITIVE,), (-POSITIVE,), (POSITIVE * 20,))
SIZES = tuple((torch.randn(n, 4),) for n in (3, 2, 4, 5, 9))
TRIPS = tuple((POSITIVE, torch.tensor(n)) for n in (2, 0, 40, -3))


class Model(nn.Module):
    def __init__(self, call: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("mean", torch.randn(4))
        self.register_buffer("count", torch.tensor(0))
        self.call = call

    def forward(self, x: Tensor, n: Tensor | None = None) -> Any:
        return self.call(self, x) if n is None else self.call(self, x, n)


def nested(m: Any, x: Tensor) -> Any:
    def large(x: Tensor) -> Any:
        return torch.cond(
            x.sum() > 20, lambda x: m.linear(x), lambda x: x + m.mean, (x,)
        )

    scale = x.mean()
    return torch.cond(x.sum() > 0, large, lambda x: x * scale, (x,))


def dtypes(m: Any, x: Tensor, n: Tensor) -> Any:
    def step(i: Any, flag: Any, double: Any, half: Any, wide: Any, byte: Any) -> Any:
        return i + 1, ~flag, double * 1.5, half + 0.5, wide * 3 + i, byte ^ 7

    state = (
        torch.tensor(0),
        x.sum() > 0,
        torch.ones(2, dtype=torch.float64),
        torch.ones(3, dtype=torch.bfloat16),
        torch.tensor([2**40, -1]),
        torch.tensor([1, 2], dtype=torch.uint8),
    )
    return while_loop(lambda i, *_: i < n, step, state)


def branch_in_loop(m: Any, x: Tensor, n: Tensor) -> Any:
    def inner(i: Tensor, a: Tensor) -> Tensor:
        return while_loop(lambda j, _: j < i, lambda j, b: (j + 1, b + j), (i * 0, a))[
            1
        ]

    def step(i: Tensor, a: Tensor) -> Any:
        return i + 1, torch.cond(a.sum() > 9, lambda i, a: a - 5, inner, (i, a))

    return while_loop(lambda i, _: i < n, step, (torch.tensor(0), x.clone()))


def backwards(m: Any, x: Tensor) -> Any:
    def step(carry: Any, slices: Any) -> Any:
        total, (count,) = carry["total"], carry["rest"]
        now = {"total": total * 0.5 + slices["x"], "rest": (count + 1,)}
        return now, [m.linear(total), (count * 2, slices["y"].sum())]

    init = {"total": torch.zeros(4), "rest": (torch.tensor(0),)}
    xs = {"x": x.T.contiguous(), "y": x.T[:2] * 2}
    return scan(step, init, xs, dim=1, reverse=True)


def branch_in_scan(m: Any, x: Tensor) -> Any:
    def step(c: Tensor, y: Tensor) -> Any:
        new = torch.cond(
            y.sum() > 0, lambda c, y: c + y, lambda c, y: c - m.mean, (c, y)
        )
        return new, map_(lambda z: z * 2, c)

    return scan(step, torch.zeros(4), x)


def scan_in_branch(m: Any, x: Tensor) -> Any:
    def scanned(x: Tensor) -> Tensor:
        return scan(lambda c, y: (c + y, c * y), torch.zeros(4), x)[1]

    return torch.cond(x.sum() > 0, scanned, lambda x: x * 2, (x,))


def mapped(m: Any, x: Tensor) -> Any:
    return map_(lambda row, k: (m.linear(row) * k, row.argmax()), x, m.mean)


def recurrence(m: Any, x: Tensor) -> Any:
    def combine(left: Any, right: Any) -> Any:
        return left[0] * right[0], right[0] * left[1] + right[1]

    pair = (x.sigmoid(), x)
    return [
        associative_scan(combine, pair, dim, reverse, combine_mode="generic")
        for dim in (0, 1)
        for reverse in (False, True)
    ]


def each(m: Any, x: Tensor) -> Any:
    return torch.vmap(lambda row: m.linear(row) * row.sum())(x)


@pytest.mark.parametrize(
    ("call", "given", "native"),
    [
        (nested, ROWS, {"case": 2}),
        (dtypes, TRIPS, {"while": 1}),
        (branch_in_loop, TRIPS, {"while": 2, "case": 1}),
        (backwards, ROWS, {"while": 1}),
        (branch_in_scan, ROWS, {"while": 2, "case": 1}),
        (scan_in_branch, ROWS, {"while": 1, "case": 1}),
        (mapped, ROWS, {"while": 1}),
        (recurrence, ROWS, {}),
        (each, ROWS, {}),
    ],
)
def test_control_flow(check_module: Any, call: Any, given: Any, native: Any) -> None:
    lowered = check_module(Model(call), given[0], more=given[1:], tol=(1e-5, 1e-5))
    assert Counter(re.findall(r"stablehlo\.(while|case)\b", lowered.text())) == native


def test_loops_compile_for_tpu(
    run_module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPU_EXPORT_CACHE", str(tmp_path))

    def all_of_them(m: Any, x: Tensor, n: Tensor) -> Any:
        loops = [call(m, x, n) for call in (dtypes, branch_in_loop)]
        return loops, [call(m, x) for call in (nested, backwards, branch_in_scan)]

    _, lowered, _ = run_module(Model(all_of_them), TRIPS[0])
    (target,) = compile_program(lowered.program, [parse_topology("v5e-1")])
    assert target.main
    assert target.report


def on_size(m: Any, x: Tensor) -> Any:
    return [
        torch.cond(test, lambda x: x + 1, lambda x: x - 1, (x,))
        for n in [x.shape[0]]
        for test in (n > 4, n == 4, n != 4, n % 2 == 0, n * 0.5 > 2.2, n > 1)
    ]


def counted(m: Any, x: Tensor) -> Any:
    def step(i: Tensor, a: Tensor) -> Any:
        return i + 1, a + torch.index_select(x, 0, i.reshape(1)).squeeze(0) * i

    return while_loop(lambda i, _: i < x.shape[0], step, (torch.tensor(0), m.mean * 1))


def summed(m: Any, x: Tensor) -> Any:
    return scan(lambda c, y: (c * 0.5 + y, c + y), torch.zeros(4), x, reverse=True)


def columns(m: Any, x: Tensor) -> Any:
    return scan(lambda c, y: (c * 0.5 + y, c + y), x[:, 0] * 0, x, dim=1)


@pytest.mark.parametrize("call", [on_size, counted, summed, columns, mapped, each])
def test_dynamic_sizes(check_module: Any, call: Any) -> None:
    batch = Dim("batch", min=2, max=16)
    shapes = {"x": {0: batch}, "n": None}
    given = [(x, None) for (x,) in SIZES]
    check_module(
        Model(call), given[0], more=given[1:], dynamic_shapes=shapes, tol=(1e-5, 1e-5)
    )


def write_in_branches(m: Any, x: Tensor) -> Any:
    def inner(x: Tensor) -> Tensor:
        m.mean.add_(x.sum())
        m.count.add_(1)
        return x + m.mean

    def outer(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 20, inner, lambda x: x - 1, (x,))

    def other(x: Tensor) -> Tensor:
        m.mean[1:3].mul_(0.5)
        return x * m.mean

    m.mean.add_(1)
    return torch.cond(x.sum() > 0, outer, other, (x,)), m.mean + 1, m.count * 2


def train_in_branch(m: Any, x: Tensor) -> Any:
    def train(x: Tensor) -> Tensor:
        return nn.functional.batch_norm(x, m.mean, m.mean.abs(), training=True)

    return torch.cond(x.sum() > 0, train, lambda x: x - m.mean, (x,))


def write_in_loop(m: Any, x: Tensor) -> Any:
    def step(i: Tensor, a: Tensor) -> Any:
        m.mean.index_copy_(0, i.reshape(1), a.sum().reshape(1))
        return i + 1, a * 0.5 + m.mean + m.linear.bias

    return while_loop(
        lambda i, _: (i < 4) & (m.mean.sum() < 30), step, (torch.tensor(0), x.clone())
    )


def returned(m: Any, x: Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: x, lambda x: x - 1, (x,))


@pytest.mark.parametrize(
    "call", [write_in_branches, train_in_branch, write_in_loop, returned]
)
def test_writes_to_what_is_around(check_module: Any, call: Any) -> None:
    check_module(Model(call), ROWS[0], more=ROWS[1:], calls=2, tol=(1e-5, 1e-5))


def alias(m: Any, x: Tensor) -> Any:
    y = x * 1
    result = returned(m, y)
    return result.add_(1), y


def view(m: Any, x: Tensor) -> Any:
    part = m.mean[1:]

    def write(x: Tensor) -> Tensor:
        m.mean.add_(1)
        return x[:, 1:] + part

    return torch.cond(x.sum() > 0, write, lambda x: x[:, 1:] - 1, (x,))


@pytest.mark.parametrize(
    ("call", "reason"), [(alias, "may be an operand"), (view, "shares memory")]
)
def test_writes_to_shared_memory_are_refused(
    run_module: Any, call: Any, reason: str
) -> None:
    with pytest.raises(UnsupportedWriteError, match=reason):
        run_module(Model(call), ROWS[0])


def write_in_scan(m: Any, x: Tensor) -> Any:
    def step(c: Tensor, y: Tensor) -> Any:
        m.mean.add_(y)
        return c + y, c * 2

    return scan(step, torch.zeros(4), x)


def pointwise(m: Any, x: Tensor) -> Any:
    return associative_scan(torch.add, x, 0)


@pytest.mark.parametrize(
    ("call", "message", "hint"),
    [
        (write_in_scan, "input mutation", "return the new value"),
        (pointwise, "combine_mode", "generic"),
    ],
)
def test_what_torch_refuses(
    run_module: Any, call: Any, message: str, hint: str
) -> None:
    with pytest.raises(NotExportableError, match=message) as caught:
        run_module(Model(call), ROWS[0])
    assert hint in str(caught.value.hint)

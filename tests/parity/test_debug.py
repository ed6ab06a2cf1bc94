"""Debug mode: each op alone against torch, and a planted fault is found where it is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from jax.experimental import pallas as pl
from torch import nn

import tpu_export
from tpu_export.converters.stablehlo import registry
from tpu_export.converters.stablehlo.registry import OWN
from tpu_export.exporter.sources import resolve
from tpu_export.model_zoo.zoo import entry
from tpu_export.parity.debug import DebugReport, debug

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def _no_rules_left() -> Iterator[None]:
    before = dict(OWN)
    yield
    OWN.clear()
    OWN.update(before)


class Fn(nn.Module):
    def __init__(self, function: Callable[..., Any], **buffers: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


class Cnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.act, self.head = nn.SiLU(inplace=True), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(self.act(self.norm(self.conv(x))), 2)
        return self.head(x.mean((2, 3))).softmax(-1)


IMAGE = torch.randn(2, 3, 12, 12)


def transformer() -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()


MODELS: dict[str, tuple[Callable[[], Any], tuple[Any, ...]]] = {
    "cnn": (lambda: Cnn().eval(), (IMAGE,)),
    "cnn in training": (lambda: Cnn().train(), (IMAGE,)),
    "transformer": (transformer, (torch.randn(2, 5, 16),)),
    "bfloat16": (lambda: Cnn().eval().bfloat16(), (IMAGE.bfloat16(),)),
    "zoo": (lambda: resolve("zoo:mlp", zoo=entry), ()),
}


@pytest.mark.parametrize("name", MODELS)
def test_all_agree(name: str) -> None:
    make, args = MODELS[name]
    report = debug(make(), args)
    assert report.rows == ()
    assert report.passed
    assert set(report.counts) == {"ok"}
    assert report.counts["ok"] >= 5


def in_place(m: Any, x: torch.Tensor) -> Any:
    y = x * 2
    y.add_(1).clamp_(max=2)
    m.n.mul_(2)
    m.n[1:3] += y[1:3]
    y[0] = 7
    return y, m.n


def parts(_: Any, x: torch.Tensor) -> Any:
    a, b = x.view(2, 2).split(1, 1)
    values, places = x.topk(2)
    return a.t() @ b, values, places, torch.unbind(x.view(2, 2))[1]


def branches(_: Any, x: torch.Tensor) -> Any:
    y = torch.cond(x.sum() > 0, lambda v: v.sin(), lambda v: v.cos(), (x,))
    return torch.while_loop(lambda v: v.sum() < 50, lambda v: (v + 10,), (y,))


def numbers(_: Any, x: torch.Tensor) -> Any:
    return x * x[0].item() + x.shape[0] * 2


GRAPHS: dict[str, tuple[Callable[..., Any], dict[str, int]]] = {
    "in place and state": (in_place, {}),
    "views and several results": (parts, {}),
    "control flow": (branches, {}),
    "numbers of the data": (numbers, {}),
    "random": (lambda _, x: F.dropout(x, 0.5) + 1, {"shape only": 1}),
    "no values": (lambda _, x: torch.empty_like(x).zero_() + x, {"shape only": 1}),
    "chosen": (lambda _, x: x[x > 0].sum(), {"open": 1}),
    "written back": (lambda m, x: torch.where(x > 0, x, m.n), {}),
    "not unique": (lambda _, x: torch.linalg.svd(x.view(2, 2)), {"shape only": 1}),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_every_kind_of_node(name: str) -> None:
    function, counts = GRAPHS[name]
    module = Fn(function, n=torch.ones(4))
    report = debug(module, (torch.tensor([1.0, -2, 3, 4]),))
    assert report.rows == ()
    assert {k: n for k, n in report.counts.items() if k != "ok"} == counts
    assert module.n.tolist() == [1, 1, 1, 1]  # the model is left as it was


def wrong_silu(x: Any) -> Any:
    return jax.nn.silu(x) + 1e-2 * (x > 1)


def planted() -> DebugReport:
    return debug(Cnn().eval(), (IMAGE * 3,))


def test_a_planted_fault_is_found_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for op in (aten.silu.default, aten.silu_.default):
        monkeypatch.setitem(registry._RULES, (op, None), wrong_silu)
    report = planted()
    (row,) = report.rows
    assert not report.passed
    assert row.op in ("aten.silu_.default", "aten.silu.default")
    assert row.module == "act"
    assert row.source.startswith("test_debug.py:")
    assert row.inputs == row.outputs == ("float32[2, 8, 10, 10]",)
    assert row.max_abs == pytest.approx(1e-2, rel=1e-3)
    assert row.max_rel > row.threshold == 1e-4
    assert "act" in report.text()
    # What comes after it is computed from torch's values, and agrees.
    every = debug(Cnn().eval(), (IMAGE * 3,), keep_going=True)
    assert [r.op for r in every.rows] == [row.op]
    assert every.counts["ok"] >= 6
    assert debug(Cnn().eval(), (IMAGE * 3,), tolerance=0.1).passed


def test_without_keep_going_it_stops_at_the_first() -> None:
    tpu_export.lowers(aten.relu.default)(lambda x: x)
    model = nn.Sequential(nn.ReLU(), nn.Linear(4, 4), nn.ReLU())
    x = torch.randn(3, 4)
    assert [r.module for r in debug(model, (x,)).rows] == ["0"]
    assert [r.module for r in debug(model, (x,), keep_going=True).rows] == ["0", "2"]


FAILURES: dict[str, tuple[Callable[..., Any], str]] = {
    "a wrong shape": (lambda x: x[0], "TPX-0202: your rule for aten.erf.default"),
    "a wrong dtype": (lambda x: x > 0, "TPX-0202: your rule for aten.erf.default"),
    "raises": (lambda x: x.no_such(), "TPX-0204: your rule for aten.erf.default"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_what_lowering_cannot_take_is_a_row(name: str) -> None:
    rule, words = FAILURES[name]
    tpu_export.lowers(aten.erf.default)(rule)
    report = debug(
        Fn(lambda _, x: torch.erf(x) + 1), (torch.randn(3),), keep_going=True
    )
    (row,) = report.rows
    assert row.note.startswith(words)
    assert report.counts == {"failed": 1, "ok": 1}


@torch.library.custom_op("tpx_debug::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


double.register_fake(torch.empty_like)


def test_an_op_without_a_rule_is_a_row() -> None:
    report = debug(Fn(lambda _, x: double(x) + 1), (torch.randn(3),), keep_going=True)
    assert (
        report.rows[0].note == "TPX-0201: no lowering rule for tpx_debug.double.default"
    )
    assert report.counts == {"failed": 1, "ok": 1}


@torch.library.custom_op("tpx_debug::grow", mutates_args={"x"})
def grow(x: torch.Tensor, by: float) -> None:
    x += by


@pytest.mark.parametrize("wrong", [0, 1])
def test_an_op_of_the_user_that_writes(wrong: int) -> None:
    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        grow(m.n, 2.0)
        return x * m.n

    tpu_export.lowers(grow)(lambda x, by: x + by + wrong)
    report = debug(Fn(function, n=torch.ones(3)), (torch.randn(3),), keep_going=True)
    assert [row.op for row in report.rows] == ["tpx_debug.grow.default"] * wrong


def kernel(x: Any, wrong: int = 0) -> Any:
    def body(a: Any, b: Any) -> None:
        b[...] = a[...] * 2 + wrong

    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


@pytest.mark.parametrize("wrong", [0, 1])
def test_kernels_for_tpu_run_in_the_interpreter(wrong: int) -> None:
    tpu_export.lowers(double)(lambda x: x + x)
    tpu_export.lowers(double, platform="tpu")(lambda x: kernel(x, wrong))
    model, x = Fn(lambda _, x: double(x) + 1), torch.randn(8, 128)
    assert debug(model, (x,)).passed
    report = debug(model, (x,), platform="tpu")
    assert [row.op for row in report.rows] == ["tpx_debug.double.default"] * wrong


def test_rules_for_litert_are_those_of_litert() -> None:
    tpu_export.lowers(aten.erf.default, target="litert")(lambda x: jnp.tanh(x))
    model, x = Fn(lambda _, x: torch.erf(x)), torch.randn(3)
    assert debug(model, (x,)).passed
    assert not debug(model, (x,), target="litert").passed


MODEL = """
import jax.numpy as jnp, torch, tpu_export

@tpu_export.lowers(torch.ops.aten.{op})
def rule({parameters}):
    return {rule}

def get_model():
    class Model(torch.nn.Module):
        def forward(self, x, y):
            return {expression}
    return Model()

def get_inputs():
    return (torch.randn(3, 4{dtype}).t(), torch.randn(4, 3{dtype}))
"""
SAVED = {
    "strided": ("add.Tensor", "x, y, alpha=1", "x + y", "torch.add(x, y, alpha=2)", ""),
    "in place": ("add_.Tensor", "x, y", "x", "(x * 2).add_(y)", ""),
    "a list": (
        "cat.default", "xs, dim=0", "jnp.concatenate(xs[::-1], dim)", "torch.cat([x, y])", "",
    ),
    "bfloat16": (
        "mul.Tensor", "x, y", "x", "x * y", ", dtype=torch.bfloat16",
    ),
    "a graph": (
        "sin.default", "x", "x",
        "torch.cond(x.sum() < 100, lambda a: a.sin(), lambda a: a.cos(), (x,))", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SAVED)
def test_what_is_saved_reproduces_it(name: str, tmp_path: Path) -> None:
    op, parameters, rule, expression, dtype = SAVED[name]
    path = tmp_path / "model.py"
    path.write_text(
        MODEL.format(
            op=op, parameters=parameters, rule=rule, expression=expression, dtype=dtype
        )
    )
    report = debug(resolve(str(path)), save=tmp_path / "saved")
    (row,) = report.rows
    folder = Path(row.saved)
    assert folder.parent == tmp_path / "saved"
    assert set(np.load(folder / "outputs.npz")) == {"torch.0", "rule.0"}
    run = subprocess.run(
        [sys.executable, folder / "repro.py"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1, run.stderr
    assert f"{row.max_rel:.2e}" in run.stdout
    assert "1 differs" in run.stdout


def test_dynamic_sizes_are_those_of_the_example() -> None:
    model = Fn(
        lambda _, x: F.softmax(x.view(x.shape[0] * 2, -1), 0).sum(-1) / x.shape[0]
    )
    sizes = (({0: torch.export.Dim("rows", max=9)},),)
    assert debug(model, (torch.randn(3, 4),), dynamic_shapes=sizes).passed

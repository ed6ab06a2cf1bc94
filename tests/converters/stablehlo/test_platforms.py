"""Rules for one platform: where they are used, and a Pallas kernel compiled for v5e."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.experimental import pallas as pl
from torch import nn

import tpu_export
from tpu_export.converters.stablehlo.coverage import UnsupportedOpsError
from tpu_export.converters.stablehlo.errors import UnsupportedOptionError
from tpu_export.converters.stablehlo.registry import OWN
from tpu_export.exporter.capture import capture
from tpu_export.runtime.devices import XLA_CPU_OPTIONS
from tpu_export.runtime.stablehlo import module_text

aten = torch.ops.aten


@torch.library.custom_op("tpx_platform::row_softmax", mutates_args=())
def row_softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


row_softmax.register_fake(torch.empty_like)
OP = torch.ops.tpx_platform.row_softmax.default


def kernel(x: Any, y: Any) -> None:
    e = jnp.exp(x[...] - jnp.max(x[...], axis=-1, keepdims=True))
    y[...] = e / jnp.sum(e, axis=-1, keepdims=True)


def pallas_softmax(x: jax.Array, *, interpret: bool = False) -> Any:
    block = pl.BlockSpec((8, x.shape[1]), lambda i: (i, 0))
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(x.shape[0] // 8,),
        in_specs=[block],
        out_specs=block,
        interpret=interpret,
    )(x)


@pytest.fixture(autouse=True)
def _rules() -> Iterator[None]:
    before = dict(OWN)
    tpu_export.lowers(OP)(lambda x: jax.nn.softmax(x, axis=-1))
    tpu_export.lowers(OP, platform="tpu")(pallas_softmax)
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


def texts(function: Any) -> dict[str, str]:
    return {name: module_text(module) for name, module in function.modules.items()}


def model(_: Any, x: torch.Tensor) -> torch.Tensor:
    return row_softmax(x * 2) + 1


X = (torch.randn(32, 128),)


def test_only_the_program_of_its_platform_has_the_kernel(check_module: Any) -> None:
    found = texts(check_module(Fn(model), X).program.main)
    assert set(found) == {"", "tpu"}  # on CPU it is as the portable one
    assert "custom_call" not in found[""]
    assert "stablehlo.case" not in found[""] + found["tpu"]
    assert "@tpu_custom_call" in found["tpu"]
    assert "exponential" not in found["tpu"]
    assert "/tpx_platform.row_softmax.default/test_platforms.py:" in found["tpu"]


def test_a_model_without_such_rules_has_no_program_more(check_module: Any) -> None:
    lowered = check_module(Fn(lambda _, x: torch.softmax(x, -1)), X)
    assert set(lowered.program.main.modules) == {""}


def test_a_rule_for_cpu(check_module: Any) -> None:
    tpu_export.lowers(OP, platform="cpu")(
        lambda x: jnp.exp2(x) / jnp.exp2(x).sum(-1, keepdims=True)
    )
    found = texts(capture(Fn(model), X).lower().program.main)
    assert set(found) == {"", "cpu", "tpu"}
    assert "maximum" in found[""]
    assert "maximum" not in found["cpu"]


def test_the_kernel_computes_what_the_general_rule_does() -> None:
    x = X[0].numpy()
    run = jax.jit(lambda x: pallas_softmax(x, interpret=True)).lower(x)
    got = run.compile(compiler_options=dict(XLA_CPU_OPTIONS))(x)
    np.testing.assert_allclose(got, torch.softmax(X[0], -1), rtol=1e-5, atol=1e-7)


def test_the_kernel_is_compiled_ahead_of_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPU_EXPORT_CACHE", str(tmp_path / "cache"))
    lowered = capture(Fn(model), X).lower()
    compiled = lowered.compile(["v5e-1"])
    on_tpu = next(t for t in compiled.targets["forward"] if t.platform == "tpu")
    assert on_tpu.report is not None
    path = compiled.save(tmp_path / "m.tpuexe")
    with tpu_export.load(path, device="cpu") as program:
        y = program(X[0].numpy())
    np.testing.assert_allclose(y, torch.softmax(X[0] * 2, -1) + 1, rtol=1e-5)


def test_a_kernel_on_weights_runs_once(check_module: Any) -> None:
    module = Fn(lambda m, x: x @ row_softmax(m.w), w=torch.randn(128, 128))
    lowered = check_module(module, X)
    assert "tpu_custom_call" not in texts(lowered.program.main).get("tpu", "")
    assert "tpu_custom_call" in texts(lowered.program.prepare)["tpu"]
    assert "custom_call" not in texts(lowered.program.prepare)[""]


def inside_a_branch(_: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda v: row_softmax(v), lambda v: v * 2, (x,))


def test_inside_of_control_flow(check_module: Any) -> None:
    found = texts(check_module(Fn(inside_a_branch), X).program.main)
    assert "tpu_custom_call" in found["tpu"]
    assert "custom_call" not in found[""]


def test_an_op_of_aten_may_have_one_too(check_module: Any) -> None:
    tpu_export.lowers(aten.softmax.int, platform="tpu")(
        lambda x, dim, dtype=None: pallas_softmax(x)
    )
    found = texts(check_module(Fn(lambda _, x: x.softmax(-1)), X).program.main)
    assert "tpu_custom_call" in found["tpu"]
    assert "custom_call" not in found[""]


def test_a_rule_for_one_platform_alone_is_not_enough() -> None:
    del OWN[next(p for p in OWN if p.op is OP and p.platform is None)]
    with pytest.raises(UnsupportedOpsError) as caught:
        capture(Fn(model), X).lower()
    assert "its rule for tpu alone" in caught.value.message


def test_an_op_that_draws_is_refused() -> None:
    tpu_export.lowers(aten.dropout.default, platform="tpu")(lambda x, p, train: x)
    with pytest.raises(
        UnsupportedOptionError,
        match=r"random numbers, at aten.dropout.default in the root \(",
    ):
        capture(Fn(lambda _, x: nn.functional.dropout(x, 0.5)), X).lower()


def test_a_tflite_has_the_general_rule() -> None:
    lowered = capture(Fn(model), X).lower(target="litert")
    assert set(lowered.program.main.modules) == {""}
    assert "custom_call" not in module_text(lowered.program.main.modules[""])

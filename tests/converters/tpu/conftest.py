"""Small lowered programs made with jax.export alone, and a cache of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import pytest
from jax import export

from tpu_export.runtime.signature import (
    Dim,
    FunctionSpec,
    LoweredFunction,
    Signature,
    Slot,
    TensorSpec,
)


@dataclass(frozen=True)
class Program:
    signature: Signature
    main: LoweredFunction
    prepare: LoweredFunction | None = None


def function(
    body: Callable[..., Any], arguments: list[Slot], results: list[Slot]
) -> LoweredFunction:
    """Lower `body` as the lowering does: for TPU, static and dynamic sizes alike."""
    scope = export.SymbolicScope()
    with jax.enable_x64(True):
        avals = [
            jax.ShapeDtypeStruct(
                tuple(
                    d
                    if isinstance(d, int)
                    else export.symbolic_shape(d, scope=scope)[0]
                    for d in slot.shape
                ),
                slot.dtype,
            )
            for slot in arguments
        ]
        # The lowering turns tracebacks off: they would put this host's paths in.
        limit = jax.config.values["jax_traceback_in_locations_limit"]
        jax.config.update("jax_traceback_in_locations_limit", 0)
        exported = export.export(jax.jit(body, keep_unused=True), platforms=["tpu"])(
            *avals
        )
        jax.config.update("jax_traceback_in_locations_limit", limit)
    spec = FunctionSpec(tuple(arguments), tuple(results))
    return LoweredFunction(spec, {"": bytes(exported.mlir_module_serialized)})


def signature(main: LoweredFunction, dims: tuple[Dim, ...] = ()) -> Signature:
    def tensors(slots: tuple[Slot, ...], kind: str) -> tuple[TensorSpec, ...]:
        return tuple(
            TensorSpec(s.name, s.shape, s.dtype) for s in slots if s.kind == kind
        )

    return Signature(
        name="forward",
        parameters=(),
        inputs=tensors(main.spec.arguments, "input"),
        outputs=tensors(main.spec.results, "output"),
        output_tree={"leaf": 0},
        state=tensors(main.spec.arguments, "state"),
        dims=dims,
    )


def make_program(
    body: Callable[..., Any],
    arguments: list[Slot],
    results: list[Slot],
    *,
    prepare: LoweredFunction | None = None,
    dims: tuple[Dim, ...] = (),
) -> Program:
    main = function(body, arguments, results)
    return Program(signature(main, dims), main, prepare)


@pytest.fixture(scope="package")
def linear() -> Program:
    """y = gelu(x @ w.T + (b + b)), a counter as state; b + b is prepared."""

    def body(w: Any, b2: Any, count: Any, x: Any) -> Any:
        with jax.named_scope("net.fc/aten.linear.default/model.py:3"):
            y = x @ w.T + b2
        with jax.named_scope("net.act/aten.gelu.default/model.py:4"):
            return jax.nn.gelu(y), count + 1

    weight = Slot("weight", "fc.weight", (512, 256), "float32")
    bias = Slot("weight", "fc.bias", (512,), "float32")
    doubled = Slot("prepared", "p0", (512,), "float32")
    count = Slot("state", "count", (), "int64")
    prepare = function(lambda b: (b + b,), [bias], [doubled])
    return make_program(
        body,
        [weight, doubled, count, Slot("input", "x", ("batch", 256), "float32")],
        [Slot("output", "output_0", ("batch", 512), "float32"), count],
        prepare=prepare,
        dims=(Dim("batch", 1, 64),),
    )


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty executable cache."""
    monkeypatch.setenv("TPU_EXPORT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def program() -> Callable[..., Program]:
    """A function that lowers a body with its slots."""
    return make_program

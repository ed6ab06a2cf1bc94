from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from tpu_export.runtime.artifact import Artifact
from tpu_export.runtime.devices import XLA_CPU_OPTIONS
from tpu_export.runtime.executables import compile_portable, load_executable, mismatch
from tpu_export.runtime.manifest import Compiler
from tpu_export.runtime.signature import FunctionSpec, Slot
from tpu_export.runtime.stablehlo import (
    module_text,
    portable_callable,
    static_shape,
    static_shapes,
)

Make = Callable[..., Path]


def module_of(path: Path) -> tuple[bytes, FunctionSpec]:
    artifact = Artifact(path)
    program = artifact.manifest.programs["forward"]
    return bytes(artifact.entry(program.main_modules[""])), program.main


def test_a_portable_program_is_compiled_for_sizes(artifact: Make) -> None:
    module, spec = module_of(artifact("dynamic"))
    function = portable_callable(module, spec, "cpu")
    device = jax.devices("cpu")[0]
    for n in (1, 3):
        shapes = static_shapes(spec.arguments, {"batch": n})
        run = compile_portable(function, shapes, device, ())
        (y,) = run([jax.device_put(np.ones((n, 2), np.float32), device)])
        np.testing.assert_array_equal(y, np.full(n, 2))


def test_its_text(artifact: Make) -> None:
    text = module_text(module_of(artifact("add"))[0])
    assert "stablehlo.subtract" in text
    assert "tensor<2x3xf32>" in text


def test_an_executable_runs_again_and_again(artifact: Make) -> None:
    opened = Artifact(artifact("add", compiled=[{}]))
    data = bytes(opened.entry(opened.manifest.executables[0].main))
    device = jax.devices("cpu")[0]
    run = load_executable(data, device)
    x = jax.device_put(np.ones((2, 3), np.float32), device)
    for _ in range(3):
        (z,) = run([x, x])
        np.testing.assert_array_equal(z, np.zeros((2, 3)))


def test_static_sizes() -> None:
    assert static_shape((2, "n", "2*n + 1"), {"n": 3}) == (2, 3, 7)
    (shape,) = static_shapes([Slot("input", "x", ("n",), "bfloat16")], {"n": 4})
    assert (shape.shape, shape.dtype.name) == ((4,), "bfloat16")


CASES: tuple[tuple[dict[str, Any], str | None], ...] = (
    ({}, None),
    ({"host_features": ("a",)}, None),
    ({"host_features": ("a", "c", "d")}, "this CPU lacks c, d"),
    ({"jaxlib": "0"}, "built by jaxlib 0"),
    ({"platform_version": "v"}, "built for 'v'"),
    ({"options": {}}, "built without the options that make XLA:CPU compute right"),
)


@pytest.mark.parametrize(("change", "reason"), CASES)
def test_who_may_use_an_executable(change: dict[str, Any], reason: str | None) -> None:
    from importlib.metadata import version

    device = jax.devices("cpu")[0]
    here: dict[str, Any] = {
        "jaxlib": version("jaxlib"),
        "platform_version": device.client.platform_version,
        "host_features": (),
        "options": {**XLA_CPU_OPTIONS, "more": "1"},
    }
    said = mismatch(Compiler(**{**here, **change}), device, ("a", "b"))
    assert said is None if reason is None else str(said).startswith(reason)

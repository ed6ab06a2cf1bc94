"""The TPU's calling convention on this host's CPU: a stand-in device says it is a TPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from tpu_export.runtime import runner as runner_module
from tpu_export.runtime.artifact import Artifact
from tpu_export.runtime.executables import NoExecutableError, load_executable
from tpu_export.runtime.manifest import Manifest
from tpu_export.runtime.runner import Runner
from tpu_export.runtime.signature import FunctionSpec, Slot, layout_prepare_spec
from tpu_export.runtime.weights import Weights

Make = Callable[..., Path]
X = np.arange(6, dtype=np.float32).reshape(2, 3)


@dataclass(frozen=True)
class Chip:
    """A CPU that says it is a TPU."""

    cpu: Any
    platform: str = "tpu"

    @property
    def client(self) -> Any:
        return self.cpu.client


@pytest.fixture
def chip(monkeypatch: pytest.MonkeyPatch) -> Chip:
    monkeypatch.setattr(
        runner_module, "load_executable", lambda data, d: load_executable(data, d.cpu)
    )
    monkeypatch.setattr(Runner, "_put", lambda self, array: jax.device_put(array))
    return Chip(jax.devices("cpu")[0])


def opened(path: Path, chip: Chip, policy: Any = "require") -> tuple[Runner, Weights]:
    artifact = Artifact(path)
    portable = artifact.manifest.programs["forward"]
    return Runner(artifact, portable, chip, policy), Weights(artifact)


def test_prepare_takes_every_weight_and_gives_every_leading_argument(
    artifact: Make, chip: Chip
) -> None:
    runner, weights = opened(artifact("on tpu"), chip)
    runner.ready(weights)
    assert runner.origin == "executable tpu/v5e:1x1"
    assert runner.compilations == 0
    (y,) = runner.run(weights, {}, [jax.device_put(X)])
    weight = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_allclose(y, X @ (2 * weight) + np.array([1, 2, 3, 4]))


def test_new_weights_are_laid_out_again(artifact: Make, chip: Chip) -> None:
    runner, weights = opened(artifact("on tpu"), chip)
    runner.ready(weights)
    weights.update({"bias": np.zeros(4, np.float32)}, ["bias"])
    runner.forget()
    (y,) = runner.run(weights, {}, [jax.device_put(X)])
    weight = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_allclose(y, X @ (2 * weight))
    assert runner.compilations == 0


@pytest.mark.parametrize("shared", [True, False])
def test_sizes_of_one_prepare_share_the_weights(
    shared: bool, artifact: Make, chip: Chip
) -> None:
    def edit(manifest: Manifest) -> Manifest:
        first, second = manifest.executables
        second = replace(second, prepare=first.prepare if shared else second.prepare)
        return replace(manifest, executables=(first, second))

    runner, weights = opened(artifact("scaled on tpu", edit=edit), chip)
    leading = []
    for n in (2, 3, 2):
        (y,) = runner.run(weights, {"n": n}, [jax.numpy.ones(n)])
        np.testing.assert_array_equal(y, np.full(n, 9))
        leading.append(runner._code({"n": n}, weights)[1])
    assert leading[0] is leading[2]
    assert (leading[0] is leading[1]) is shared
    assert runner.compilations == 0


def test_a_cpu_executable_is_none_for_a_chip(artifact: Make, chip: Chip) -> None:
    runner, weights = opened(artifact("add", compiled=[{}]), chip)
    with pytest.raises(NoExecutableError, match="holds no executable for this device"):
        runner.ready(weights)


def slot(kind: Any, name: str) -> Slot:
    return Slot(kind, name, (2,), "float32")


def test_the_convention_of_a_laying_out_prepare() -> None:
    main = FunctionSpec(
        (slot("weight", "b"), slot("prepared", "p"), slot("weight", "a"), slot("input", "x")),
        (slot("output", "y"),),
    )  # fmt: skip
    prepare = FunctionSpec(
        (slot("weight", "w"), slot("weight", "a")), (slot("prepared", "p"),)
    )
    spec = layout_prepare_spec(main, prepare)
    assert [s.name for s in spec.arguments] == ["w", "a", "b"]
    assert spec.results == main.arguments[:3]
    alone = layout_prepare_spec(FunctionSpec(main.arguments[:1], ()), None)
    assert alone.arguments == alone.results == main.arguments[:1]

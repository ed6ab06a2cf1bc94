from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import pytest

from tpu_export.runtime import devices
from tpu_export.runtime.devices import (
    NoTpuError,
    UnknownDeviceError,
    choose_device,
    host_features,
    missing_for_tpu,
)


class Chip:
    platform = "tpu"

    def __init__(self, number: int) -> None:
        self.id = number


@pytest.fixture
def two_chips(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    chips: list[Any] = [Chip(0), Chip(1)]
    monkeypatch.setattr(devices, "missing_for_tpu", lambda: None)
    monkeypatch.setattr(
        jax, "devices", lambda platform: {"tpu": chips, "cpu": ["cpu"]}[platform]
    )
    return chips


@pytest.fixture
def no_chip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_TPU_NODES", ("/dev/none0",))


def test_the_cpu_when_there_is_no_chip(no_chip: None) -> None:
    assert choose_device("auto").platform == choose_device("cpu").platform == "cpu"


@pytest.mark.parametrize("wanted", ["tpu", "tpu:0", "tpu:7"])
def test_no_chip(wanted: str, no_chip: None) -> None:
    with pytest.raises(NoTpuError, match="no chip is attached") as caught:
        choose_device(wanted)
    assert caught.value.code == "TPX-0501"
    assert 'device="cpu"' in caught.value.hint


def test_a_chip_without_libtpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_TPU_NODES", ("/dev/null",))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert missing_for_tpu() == "libtpu is not installed"


@pytest.mark.parametrize(("wanted", "index"), [("auto", 0), ("tpu", 0), ("tpu:1", 1)])
def test_chips(wanted: str, index: int, two_chips: list[Any]) -> None:
    assert choose_device(wanted) is two_chips[index]


def test_the_cpu_beside_chips(two_chips: list[Any]) -> None:
    assert choose_device("cpu") == "cpu"


def test_a_chip_too_many(two_chips: list[Any]) -> None:
    with pytest.raises(NoTpuError, match="this host has 2 TPU devices"):
        choose_device("tpu:2")


def test_a_chip_that_libtpu_cannot_take(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(platform: str) -> Any:
        raise RuntimeError("The TPU is already in use by process 7\nmore")

    monkeypatch.setattr(devices, "missing_for_tpu", lambda: None)
    monkeypatch.setattr(jax, "devices", refuse)
    with pytest.raises(NoTpuError, match="already in use by process 7"):
        choose_device("tpu")


BAD = (
    "gpu",
    "",
    "TPU",
    "tpu:",
    "tpu:x",
    "tpu:-1",
    "cpu:1",
    "auto:0",
    "tpu:0:1",
    "tpu:²",
)


@pytest.mark.parametrize("wanted", BAD)
def test_unknown_devices(wanted: str, no_chip: None) -> None:
    with pytest.raises(UnknownDeviceError, match="unknown device") as caught:
        choose_device(wanted)
    assert caught.value.code == "TPX-0502"


def test_host_features_are_sorted_words() -> None:
    features = host_features()
    assert list(features) == sorted(set(features))
    assert all(" " not in word and word for word in features)


SCRIPT = """
import sys
from tpu_export.runtime.devices import choose_device, missing_for_tpu
print(choose_device("auto").platform)
print("libtpu" in open("/proc/self/maps").read())
"""


@pytest.mark.skipif(missing_for_tpu() is None, reason="this host has a TPU")
def test_jax_is_not_asked_for_a_tpu_that_is_not_there() -> None:
    """Else libtpu would look for a metadata server, and complain on stderr."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "TPU_"))}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=clean, cwd=Path("/"),
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.split() == ["cpu", "False"]
    assert done.stderr == ""

"""Which devices this host has, and what its CPU can do."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, Final

from tpu_export.runtime.errors import TpuExportError

# jaxlib 0.10.2 computes wrong results when YNNPACK fuses more than matrix products:
# reductions race, and some are off deterministically.
XLA_CPU_OPTIONS: Final = {
    "xla_cpu_experimental_ynn_fusion_type": (
        "LIBRARY_FUSION_TYPE_DOT,LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"
    )
}
_TPU_NODES: Final = ("/dev/accel0", "/dev/vfio/0")


class NoTpuError(TpuExportError):
    """A TPU was asked for and there is none."""

    code = "TPX-0501"


class UnknownDeviceError(TpuExportError):
    """A device name that is none of auto, cpu, tpu, tpu:N."""

    code = "TPX-0502"


def host_features() -> tuple[str, ...]:
    """Return the CPU's feature flags, sorted."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith(("flags", "Features")):
                return tuple(sorted(line.split(":")[1].split()))
    return ()


def missing_for_tpu() -> str | None:
    """Say what this host lacks to run on a TPU; None when nothing is missing.

    It looks at device files and installed packages only: libtpu is not initialised.
    """
    if not any(Path(node).exists() for node in _TPU_NODES):
        return f"no chip is attached ({' or '.join(_TPU_NODES)} does not exist)"
    if importlib.util.find_spec("libtpu") is None:
        return "libtpu is not installed"
    return None


def choose_device(wanted: str) -> Any:
    """Return the JAX device for "auto", "cpu", "tpu" or "tpu:N".

    Raises:
        NoTpuError: a TPU was asked for and there is none.
        UnknownDeviceError: another name.
    """
    platform, _, index = wanted.partition(":")
    named = platform in ("auto", "cpu", "tpu")
    numbered = platform == "tpu" and index.isascii() and index.isdecimal()
    if not named or (":" in wanted and not numbered):
        raise UnknownDeviceError(
            f"unknown device {wanted!r}", hint="devices are auto, cpu, tpu and tpu:N"
        )
    missing = missing_for_tpu()
    if platform == "tpu" and missing:
        raise NoTpuError(
            f"no TPU to run on: {missing}",
            hint='load with device="cpu", or run on a Cloud TPU host with tpu-export[tpu]',
        )
    if platform == "cpu" or missing:
        return _devices("cpu")[0]
    found = _tpus()
    if int(index or 0) >= len(found):
        raise NoTpuError(
            f"no device {wanted!r}: this host has {len(found)} TPU devices",
            hint=f"choose tpu:0 … tpu:{len(found) - 1}",
        )
    return found[int(index or 0)]


def _tpus() -> list[Any]:
    try:
        return _devices("tpu")
    except (
        RuntimeError
    ) as error:  # libtpu refuses: the chips are taken, the driver is old
        reason = (str(error).splitlines() or [""])[0]
        raise NoTpuError(
            f"the TPU cannot be used: {reason}",
            hint='end the process that holds it, or load with device="cpu"',
        ) from error


def _devices(platform: str) -> list[Any]:
    import jax

    keep_off_missing_tpu()
    return list(jax.devices(platform))


def keep_off_missing_tpu() -> None:
    """Have JAX use the CPU alone where there is no TPU.

    Else it looks for every accelerator, and libtpu for a metadata server. A choice that
    the process has made already stays.
    """
    import jax

    if missing_for_tpu() and not getattr(jax.config, "jax_platforms", None):
        jax.config.update("jax_platforms", "cpu")

"""Raw PJRT executables: loaded without pickle, run on flat lists of arrays.

The one adapter to jaxlib's client; what it uses there is semi-private.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any, TypeAlias

import jax
import numpy as np
from jaxlib import lapack, xla_client

from tpu_export.runtime.devices import XLA_CPU_OPTIONS
from tpu_export.runtime.errors import TpuExportError
from tpu_export.runtime.manifest import Compiler

Flat: TypeAlias = Callable[[Sequence[Any]], list[Any]]


class NoExecutableError(TpuExportError):
    """executables="require", and none in the artifact may be used here."""

    code = "TPX-0503"


class UnknownPolicyError(TpuExportError):
    """executables= is none of auto, never and require."""

    code = "TPX-0514"


class CompileError(TpuExportError):
    """XLA does not take the artifact's StableHLO on this device."""

    code = "TPX-0508"


class ExecutionError(TpuExportError):
    """The device failed while it ran the program: memory, or the device itself."""

    code = "TPX-0509"


def load_executable(data: bytes, device: Any) -> Flat:
    """Return raw PJRT bytes as a function of flat device arrays.

    The bytes are native code: check where they come from before. Argument count and sizes
    are checked by PJRT, dtypes are not.
    """
    if device.platform == "cpu" and b"lapack_" in data:
        # jaxlib's LAPACK calls jump to addresses that only lowering fills in.
        lapack.prepare_lapack_call("getrf_ffi", np.float32)  # type: ignore[no-untyped-call]
    devices = xla_client.DeviceList((device,))
    executable = device.client.deserialize_executable(data, executable_devices=devices)

    def run(arrays: Sequence[Any]) -> list[Any]:
        results = executable.execute_sharded(list(arrays))
        shards = results.disassemble_into_single_device_arrays()
        return [shard[0] for shard in shards]

    return run


def compile_portable(
    function: Callable[..., Any],
    shapes: Sequence[Any],
    device: Any,
    donated: Sequence[int],
) -> Flat:
    """Compile a portable program for a device, here and now."""
    sharding = jax.sharding.SingleDeviceSharding(device)
    placed = [jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=sharding) for s in shapes]
    options: dict[str, str | bool] = (
        dict(XLA_CPU_OPTIONS) if device.platform == "cpu" else {}
    )
    with jax.enable_x64(True):
        compiled = (
            jax.jit(function, donate_argnums=tuple(donated), keep_unused=True)
            .lower(*placed)
            .compile(compiler_options=options)
        )
    return lambda arrays: list(compiled(*arrays))


def mismatch(compiler: Compiler, device: Any, features: Sequence[str]) -> str | None:
    """Say why an executable may not be used here; None when it may."""
    here, options = device.client.platform_version, compiler.options
    if compiler.jaxlib != version("jaxlib"):
        return f"built by jaxlib {compiler.jaxlib}, here is {version('jaxlib')}"
    if compiler.platform_version != here:
        return f"built for {compiler.platform_version!r}, here is {here!r}"
    if device.platform == "cpu" and not XLA_CPU_OPTIONS.items() <= options.items():
        return "built without the options that make XLA:CPU compute right results"
    missing = sorted(set(compiler.host_features) - set(features))
    if missing:
        return f"this CPU lacks {', '.join(missing[:5])}"
    return None

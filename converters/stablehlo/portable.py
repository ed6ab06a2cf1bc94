"""A traced function as portable StableHLO, for each platform whose program is another."""

from __future__ import annotations

from typing import Any

import jax
from jax import export
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from tpu_export.converters.stablehlo.assertions import without_assertions
from tpu_export.converters.stablehlo.count_functions import own_dimensions
from tpu_export.converters.stablehlo.litert_forms import litert_forms
from tpu_export.converters.stablehlo.platforms import resolved, special_platforms
from tpu_export.converters.stablehlo.registry import Target


def portable_modules(
    closed: ClosedJaxpr, target: Target, *, may_be_empty: bool = False
) -> dict[str, bytes]:
    """Export for TPU, and per platform where its program is another.

    JAX lowers some things differently on CPU, and the user may have rules for one platform.

    Args:
        closed: what to export.
        target: "xla" has platforms, "litert" none.
        may_be_empty: a dimension may be 0, which JAX would refuse.
    """
    modules = _modules(closed, target)
    if not may_be_empty:
        return modules
    return {name: without_assertions(module) for name, module in modules.items()}


def _modules(closed: ClosedJaxpr, target: Target) -> dict[str, bytes]:
    if target != "xla":
        return {"": _export(litert_forms(resolved(closed, "")), "cpu")}
    modules = {"": _export(resolved(closed, ""), "tpu")}
    for platform in sorted({"cpu", *special_platforms(closed)}):
        module = _export(resolved(closed, platform), platform)
        if module != modules[""]:
            modules[platform] = module
    return modules


def _export(closed: ClosedJaxpr, platform: str) -> bytes:
    function = jaxpr_as_fun(closed)

    def main(*arrays: Any) -> tuple[Any, ...]:
        return tuple(function(*arrays))

    shapes = [
        jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in closed.jaxpr.invars
    ]
    with jax.enable_x64(True), no_tracebacks(), own_dimensions(closed):
        jitted = jax.jit(main, keep_unused=True)
        exported = export.export(jitted, platforms=(platform,))(*shapes)
    return bytes(exported.mlir_module_serialized)


def no_tracebacks() -> Any:
    """Keep paths of this host out of the program: its bytes depend on the model alone."""
    from jax._src.config import traceback_in_locations_limit

    return traceback_in_locations_limit(0)

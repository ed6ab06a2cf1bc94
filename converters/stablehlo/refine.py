"""A portable program with its dynamic dimensions bound to sizes."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO

import jax
from jax import export
from jax.extend import mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpu_export.runtime.signature import FunctionSpec
from tpu_export.runtime.stablehlo import portable_callable, static_shapes


def refined(module: bytes, spec: FunctionSpec, dims: Mapping[str, int]) -> bytes:
    """Return a module whose sizes follow from static arguments, with these sizes.

    Raises:
        RuntimeError: the program cannot have them.
    """
    with jax.enable_x64(True):
        function = jax.jit(portable_callable(module, spec, "cpu"), keep_unused=True)
        called = export.export(function)(*static_shapes(spec.arguments, dims))
    bytecode = BytesIO()
    with ir.Context() as context:
        stablehlo.register_dialect(context)
        parsed = mlir.deserialize_portable_artifact(called.mlir_module_serialized)
        parsed.operation.write_bytecode(bytecode)
        refined = mlir.refine_polymorphic_shapes(bytecode.getvalue())
        version = stablehlo.get_version_from_compatibility_requirement(
            stablehlo.StablehloCompatibilityRequirement.WEEK_4
        )
        return bytes(mlir.serialize_portable_artifact(refined, version))

"""JAX's checks of sizes inside a program, taken out where a dimension may be 0.

JAX writes "Expected value >= 1" into the program for each dimension. A loader checks the
ranges of the signature before a call, so nothing is lost.
"""

from __future__ import annotations

from io import BytesIO

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

_WEEKS = stablehlo.StablehloCompatibilityRequirement.WEEK_4


def without_assertions(module: bytes) -> bytes:
    """Return a portable artifact without its calls of shape_assertion."""
    with ir.Context() as context:
        stablehlo.register_dialect(context)
        parsed = stablehlo.deserialize_portable_artifact(context, module)
        for function in parsed.body.operations:
            for block in function.regions[0].blocks:
                for operation in [*block.operations]:
                    if _asserts(operation):
                        operation.erase()
        bytecode = BytesIO()
        parsed.operation.write_bytecode(bytecode)
        version = stablehlo.get_version_from_compatibility_requirement(_WEEKS)
        return bytes(
            stablehlo.serialize_portable_artifact_str(bytecode.getvalue(), version)
        )


def _asserts(operation: ir.OpView) -> bool:
    return (
        operation.operation.name == "stablehlo.custom_call"
        and ir.StringAttr(operation.attributes["call_target_name"]).value
        == "shape_assertion"
    )

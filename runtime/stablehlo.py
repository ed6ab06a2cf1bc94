"""The one adapter between portable StableHLO bytes and JAX.

It rebuilds jax.export.Exported around the bytes, which JAX can then trace, refine to static
shapes and compile. The dataclass is public, some of its fields are not documented.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import export

from tpu_export.runtime.expressions import FUNCTIONS, evaluate
from tpu_export.runtime.signature import DimSize, FunctionSpec, Slot

# What lowering exports with: no platform index, dimension sizes come from shapes.
_CONVENTION = 10
_SYMBOLIC = {**FUNCTIONS, "max": jax.core.max_dim, "min": jax.core.min_dim}


def portable_callable(
    module: bytes, spec: FunctionSpec, platform: str
) -> Callable[..., tuple[jax.Array, ...]]:
    """Return a function of the spec's arguments, in order, that jax.jit can trace.

    Args:
        module: a portable StableHLO artifact.
        spec: its calling convention; dynamic sizes are expressions in dimension names.
        platform: "tpu" or "cpu".
    """
    names = sorted({n for s in (*spec.arguments, *spec.results) for n in _names(s)})
    symbols = export.symbolic_shape(", ".join(names)) if names else ()
    # JAX's variables are 1 or more, sizes 0 or more.
    variables = {n: s - 1 for n, s in zip(names, symbols, strict=True)}
    arguments = tuple(_aval(slot, variables) for slot in spec.arguments)
    results = tuple(_aval(slot, variables) for slot in spec.results)
    n, m = len(arguments), len(results)
    return export.Exported(
        fun_name="main",
        in_tree=jax.tree.structure(((0,) * n, {})),
        in_avals=arguments,
        out_tree=jax.tree.structure((0,) * m),
        out_avals=results,
        _has_named_shardings=False,
        _in_named_shardings=(None,) * n,
        _out_named_shardings=(None,) * m,
        in_shardings_hlo=(None,) * n,
        out_shardings_hlo=(None,) * m,
        nr_devices=1,
        platforms=(platform,),
        ordered_effects=(),
        unordered_effects=(),
        disabled_safety_checks=(),
        mlir_module_serialized=module,
        calling_convention_version=_CONVENTION,
        module_kept_var_idx=tuple(range(n)),
        uses_global_constants=True,
        _get_vjp=None,
    ).call


def module_text(module: bytes) -> str:
    """Return a portable artifact as StableHLO text with its locations."""
    return str(parsed(module).operation.get_asm(enable_debug_info=True))


def parsed(module: bytes) -> Any:
    """Return a portable artifact as an MLIR module of jaxlib's bindings."""
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import sdy, stablehlo

    context = ir.Context()
    sdy.register_dialect(context)  # on calls of LAPACK
    stablehlo.register_dialect(context)
    return stablehlo.deserialize_portable_artifact(context, module)


def static_shapes(
    slots: Sequence[Slot], dims: Mapping[str, int]
) -> tuple[jax.ShapeDtypeStruct, ...]:
    """Return the slots' shapes with every dynamic dimension bound to a size."""
    return tuple(
        jax.ShapeDtypeStruct(
            static_shape(slot.shape, dims), jax.numpy.dtype(slot.dtype)
        )
        for slot in slots
    )


def static_shape(shape: Sequence[DimSize], dims: Mapping[str, int]) -> tuple[int, ...]:
    """Return a shape with every dynamic dimension bound to a size."""
    return tuple(
        size if isinstance(size, int) else int(evaluate(size, dims)) for size in shape
    )


def _names(slot: Slot) -> set[str]:
    words = {
        w
        for size in slot.shape
        if isinstance(size, str)
        for w in re.findall(r"[A-Za-z_]\w*", size)
    }
    return words - set(FUNCTIONS)


def _aval(slot: Slot, variables: Mapping[str, Any]) -> jax.core.ShapedArray:
    shape = tuple(
        size if isinstance(size, int) else evaluate(size, variables, _SYMBOLIC)
        for size in slot.shape
    )
    return jax.core.ShapedArray(shape, np.dtype(jax.numpy.dtype(slot.dtype)))

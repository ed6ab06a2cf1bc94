"""Whether this host's CPU runs artifacts: a small one is written, loaded, run and compared."""

from __future__ import annotations

import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

SIZE = 64
WEIGHTS = "weights/model.safetensors"
MODULE = "programs/forward.mlirbc"


def cpu_runs() -> str:
    """Return "yes: …", or "no: …" with the reason."""
    try:
        actual, expected = outputs()
    except Exception as error:  # whatever it is, it is what the user needs to know
        reason = (str(error).strip().splitlines() or [""])[0]
        return f"no: {type(error).__name__}: {reason}"
    if actual.shape != expected.shape or not (actual == expected).all():
        return f"no: XLA of jaxlib {version('jaxlib')} computes wrong results here"
    return f"yes: jaxlib {version('jaxlib')} ran a program and its result is right"


def outputs() -> tuple[Any, Any]:
    """Return what an artifact computes here, and what numpy does.

    Small integers as floats: sums are exact in every order.
    """
    import numpy as np

    from tpu_export.runtime.program import load

    draw = np.random.default_rng(0).integers
    w = draw(-3, 4, (SIZE, SIZE)).astype(np.float32)
    x = draw(-3, 4, SIZE).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "check.tpuexe", w)
        with load(path, device="cpu", executables="never") as program:
            return program(x), np.maximum(x @ w, 0) + x.sum()


def write(path: Path, w: Any) -> Path:
    """Write an artifact of relu(x @ w) + sum(x)."""
    from tpu_export.runtime.artifact import ArtifactWriter
    from tpu_export.runtime.manifest import FORMAT_VERSION, Manifest, Program, WeightRef
    from tpu_export.runtime.signature import (
        FunctionSpec,
        Parameter,
        Signature,
        Slot,
        TensorSpec,
    )

    shape, dtype = (SIZE,), "float32"
    signature = Signature(
        name="forward",
        parameters=(Parameter("x", "positional", {"leaf": 0}),),
        inputs=(TensorSpec("x", shape, dtype),),
        outputs=(TensorSpec("y", shape, dtype),),
        output_tree={"leaf": 0},
    )
    arguments = (Slot("weight", "w", w.shape, dtype), Slot("input", "x", shape, dtype))
    spec = FunctionSpec(arguments, (Slot("output", "y", shape, dtype),))
    manifest = Manifest(
        version=FORMAT_VERSION,
        features=(),
        producers={"tpu-export doctor": "1"},
        programs={"forward": Program(signature, spec, {"": MODULE}, None, {})},
        weights={"w": WeightRef(WEIGHTS, "w", w.shape, dtype)},
        executables=(),
        entries={},
    )
    with ArtifactWriter(path) as writer:
        writer.add_tensors(WEIGHTS, {"w": (w.shape, dtype, lambda: w)})
        writer.add_bytes(MODULE, module(w))
        writer.finish(manifest)
        return writer.commit()


def module(w: Any) -> bytes:
    """Return the program as portable StableHLO."""
    import jax
    import jax.numpy as jnp

    from tpu_export.runtime.devices import keep_off_missing_tpu

    keep_off_missing_tpu()

    def main(w: Any, x: Any) -> tuple[Any]:
        return (jnp.maximum(x @ w, 0) + x.sum(),)

    shapes = (w, jax.ShapeDtypeStruct(w.shape[:1], w.dtype))
    exported = jax.export.export(jax.jit(main), platforms=["cpu"])(*shapes)
    return bytes(exported.mlir_module_serialized)

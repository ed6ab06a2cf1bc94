"""Small artifacts made with jax.export alone: no torch, some kilobytes, milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from tpu_export.runtime.artifact import ArtifactWriter
from tpu_export.runtime.devices import XLA_CPU_OPTIONS, host_features
from tpu_export.runtime.manifest import (
    FORMAT_VERSION,
    Compiler,
    CpuEngine,
    Executable,
    Manifest,
    Program,
    WeightRef,
    features_of,
)
from tpu_export.runtime.signature import (
    RNG,
    Dim,
    FunctionSpec,
    InputRange,
    Parameter,
    Signature,
    Slot,
    TensorSpec,
    layout_prepare_spec,
)
from tpu_export.runtime.stablehlo import portable_callable, static_shapes

WEIGHTS = "weights/model.safetensors"


class Model:
    """What an artifact of one signature is made from; `main` follows the specs' order."""

    def __init__(
        self, signature: Signature, main: Callable[..., Any], **rest: Any
    ) -> None:
        self.signature = signature
        self.main = main
        self.weights: dict[str, np.ndarray] = rest.pop("weights", {})
        self.leading: tuple[Slot, ...] = rest.pop("leading", ())
        self.prepare: Callable[..., Any] | None = rest.pop("prepare", None)
        self.entries: dict[str, bytes] = {}  # by prefix, in place of the true ones
        self.platform = "cpu"
        self.compiled: tuple[dict[str, int], ...] = ()
        self.engines: tuple[CpuEngine, ...] = ()
        assert not rest

    def payload(self, entry: str, true: bytes) -> bytes:
        found = [p for prefix, p in self.entries.items() if entry.startswith(prefix)]
        return found[0] if found else true

    @property
    def main_spec(self) -> FunctionSpec:
        s = self.signature
        written = [i for i in s.inputs if i.name in s.mutated_inputs]
        arguments = (*self.leading, *slots("state", s.state), *slots("input", s.inputs))
        results = (
            *slots("output", s.outputs),
            *slots("state", s.state),
            *slots("input", written),
        )
        return FunctionSpec(arguments, results)

    @property
    def prepare_spec(self) -> FunctionSpec | None:
        if self.prepare is None:
            return None
        state = {s.name for s in self.signature.state}
        raw = [TensorSpec(n, a.shape, a.dtype.name) for n, a in self.weights.items()
               if n not in state]  # fmt: skip
        results = tuple(s for s in self.leading if s.kind == "prepared")
        return FunctionSpec(tuple(slots("weight", raw)), results)


def slots(kind: Any, specs: Sequence[TensorSpec]) -> list[Slot]:
    return [Slot(kind, s.name, s.shape, s.dtype) for s in specs]


def signature(
    inputs: Mapping[str, tuple[tuple[int | str, ...], str]],
    outputs: Mapping[str, tuple[tuple[int | str, ...], str]],
    name: str = "forward",
    **rest: Any,
) -> Signature:
    """A signature of plain tensors; several outputs come as a dict."""
    leaves = [[key, {"leaf": i}] for i, key in enumerate(outputs)]
    tree: dict[str, object] = {"leaf": 0} if len(outputs) == 1 else {"dict": leaves}
    return replace(
        Signature(
            name=name,
            parameters=tuple(
                Parameter(n, "positional", {"leaf": i}) for i, n in enumerate(inputs)
            ),
            inputs=tuple(TensorSpec(n, *spec) for n, spec in inputs.items()),
            outputs=tuple(TensorSpec(n, *spec) for n, spec in outputs.items()),
            output_tree=tree,
        ),
        **rest,
    )


def portable(function: Callable[..., Any], spec: FunctionSpec) -> bytes:
    names = sorted({s for a in spec.arguments for s in a.shape if isinstance(s, str)})
    symbols = export.symbolic_shape(", ".join(names)) if names else ()
    known = dict(zip(names, symbols, strict=True))
    shapes = [
        jax.ShapeDtypeStruct(
            tuple(known.get(d, d) for d in a.shape), jnp.dtype(a.dtype)
        )
        for a in spec.arguments
    ]
    with jax.enable_x64(True):
        exported = export.export(
            jax.jit(function, keep_unused=True), platforms=["cpu"]
        )(*shapes)
    return bytes(exported.mlir_module_serialized)


def executable(
    module: bytes, spec: FunctionSpec, dims: Mapping[str, int], donated: Sequence[int]
) -> bytes:
    function = portable_callable(module, spec, "cpu")
    with jax.enable_x64(True):
        jitted = jax.jit(function, donate_argnums=tuple(donated), keep_unused=True)
        lowered = jitted.lower(*static_shapes(spec.arguments, dims))
        compiled: Any = lowered.compile(compiler_options=dict(XLA_CPU_OPTIONS))
    return bytes(compiled.runtime_executable().serialize())


@cache
def this_compiler(platform: str) -> Compiler:
    device = jax.devices("cpu")[0]
    return Compiler(
        version("jaxlib"), device.client.platform_version,
        host_features() if platform == "cpu" else (),
        dict(XLA_CPU_OPTIONS),
    )  # fmt: skip


def write(
    path: Path,
    *models: Model,
    compiled: Sequence[Mapping[str, int]] = (),
    compiler: Compiler | None = None,
    edit: Callable[[Manifest], Manifest] = lambda manifest: manifest,
    weights: Mapping[str, WeightRef] | None = None,
) -> Path:
    """Write an artifact; `compiled` are the sizes to add CPU executables for."""
    arrays = {n: a for m in models for n, a in m.weights.items()}
    with ArtifactWriter(path) as writer:
        writer.add_tensors(
            WEIGHTS,
            {n: (a.shape, a.dtype.name, lambda a=a: a) for n, a in arrays.items()},
        )
        programs, executables = {}, []
        for model in models:
            name = model.signature.name
            programs[name] = _program(writer, model)
            executables += [
                _compiled(writer, model, dims, compiler)
                for dims in (*compiled, *model.compiled)
            ]
        references = {
            n: WeightRef(WEIGHTS, n, a.shape, a.dtype.name) for n, a in arrays.items()
        }
        engines = tuple(e for m in models for e in m.engines)
        for entry in dict.fromkeys(e.main for e in engines if e.main):
            writer.add_bytes(entry, b"no .tflite")
        manifest = Manifest(
            version=FORMAT_VERSION,
            features=features_of((m.signature for m in models), engines),
            producers={"tests": "1"},
            programs=programs,
            weights={**references, **(weights or {})},
            executables=tuple(executables),
            entries={},
            cpu_engines=engines,
        )
        writer.finish(edit(manifest))
        return writer.commit()


def _program(writer: ArtifactWriter, model: Model) -> Program:
    name, spec = model.signature.name, model.prepare_spec
    entry = f"programs/{name}.mlirbc"
    module = portable(model.main, model.main_spec)
    writer.add_bytes(entry, model.payload(entry, module))
    modules = {}
    if model.prepare is not None and spec is not None:
        modules[""] = f"programs/{name}.prepare.mlirbc"
        writer.add_bytes(modules[""], portable(model.prepare, spec))
    return Program(model.signature, model.main_spec, {"": entry}, spec, modules)


def _compiled(
    writer: ArtifactWriter,
    model: Model,
    dims: Mapping[str, int],
    compiler: Compiler | None,
) -> Executable:
    name, spec = model.signature.name, model.main_spec
    donated = [i for i, s in enumerate(spec.arguments) if s.kind == "state"]
    sizes = "".join(f".{k}={v}" for k, v in sorted(dims.items()))
    stem = f"executables/{model.platform}/host/{name}{sizes}"
    main = executable(portable(model.main, spec), spec, dims, donated)
    writer.add_bytes(f"{stem}.bin", model.payload(f"{stem}.bin", main))
    prepare = None
    if model.prepare is not None and model.prepare_spec is not None:
        prepare = f"{stem}.prepare.bin"
        native = _prepare(model, model.prepare, model.prepare_spec)
        writer.add_bytes(prepare, model.payload(prepare, native))
    return Executable(
        signature=name, platform=model.platform,
        topology="host" if model.platform == "cpu" else "v5e:1x1", dims=dict(dims),
        main=f"{stem}.bin", prepare=prepare, layouts=(None,) * len(spec.arguments),
        compiler=compiler or this_compiler(model.platform),
    )  # fmt: skip


def _prepare(model: Model, prepare: Callable[..., Any], spec: FunctionSpec) -> bytes:
    if model.platform == "cpu":
        return executable(portable(prepare, spec), spec, {}, ())
    wide = layout_prepare_spec(model.main_spec, spec)

    def function(*arrays: Any) -> Any:
        known = {s.name: a for s, a in zip(wide.arguments, arrays, strict=True)}
        made = iter(prepare(*(known[s.name] for s in spec.arguments)))
        return tuple(
            next(made) if s.kind == "prepared" else known[s.name] for s in wide.results
        )

    return executable(portable(function, wide), wide, {}, ())


def add() -> Model:
    """x - y: stateless, no weights."""
    spec = ((2, 3), "float32")
    return Model(signature({"x": spec, "y": spec}, {"z": spec}), lambda x, y: (x - y,))


def linear() -> Model:
    """x @ prepared + bias, with prepared = 2 * weight: weight-only work."""
    weights = {
        "weight": np.arange(12, dtype=np.float32).reshape(3, 4),
        "bias": np.array([1, 2, 3, 4], np.float32),
    }
    leading = (
        Slot("prepared", "doubled", (3, 4), "float32"),
        Slot("weight", "bias", (4,), "float32"),
    )
    return Model(
        signature({"x": ((2, 3), "float32")}, {"y": ((2, 4), "float32")}),
        lambda w, b, x: (x @ w + b,),
        weights=weights,
        leading=leading,
        prepare=lambda w, b: (w * 2,),
    )


def counter(name: str = "forward") -> Model:
    """State that each call adds x to; returns the new total."""
    return Model(
        signature(
            {"x": ((), "int32")}, {"total": ((), "int32")}, name,
            state=(TensorSpec("count", (), "int32"),),
        ),
        lambda count, x: (count + x, count + x),
        weights={"count": np.array(5, np.int32)},
    )  # fmt: skip


def dynamic() -> Model:
    """Sums over the last axis, for any batch of 1 to 8."""
    return Model(
        signature(
            {"x": (("batch", 2), "float32")}, {"y": (("batch",), "float32")},
            dims=(Dim("batch", 1, 8),),
        ),
        lambda x: (x.sum(-1),),
    )  # fmt: skip


def constrained() -> Model:
    """x + n, for no more rows than there are columns, and n from 3."""
    return Model(
        signature(
            {"x": (("rows", "columns"), "float32"), "n": ((), "int64")},
            {"y": (("rows", "columns"), "float32")},
            dims=(Dim("rows"), Dim("columns", 1, 9)),
            constraints=("rows <= columns", "n > 2"),
        ),
        lambda x, n: (x + n.astype("float32"),),
    )


def engines() -> Model:
    model = dynamic()
    times, makers = {"litert": 5, "xla": 7}, {"ai-edge-litert": "2"}
    model.engines = (
        CpuEngine(
            "forward", {"batch": 1}, "litert", "litert/model.tflite", times, makers
        ),
        CpuEngine("forward", {"batch": 2}, "xla", None, {}, {}),
    )
    return model


def ranged() -> Model:
    """Rows of a table of 4 by x, which may count from its end, and y, which may not."""
    table = np.arange(4, dtype=np.float32)
    return Model(
        signature(
            {"x": ((3,), "int64"), "y": (("n",), "int32")},
            {"a": ((3,), "float32"), "b": (("n",), "float32")},
            dims=(Dim("n"),),
            ranges=(InputRange("x", -4, 3, "table has 4 rows"),
                    InputRange("y", 0, 3, "other has 4 rows")),
        ),
        lambda x, y: (jnp.asarray(table)[x], jnp.asarray(table)[y]),
    )  # fmt: skip


def mutating() -> Model:
    """Writes 2 * x back into x and returns the sum of what x was."""
    spec = ((3,), "float32")
    return Model(
        signature({"x": spec}, {"s": ((), "float32")}, mutated_inputs=("x",)),
        lambda x: (x.sum(), x * 2),
    )


def two() -> tuple[Model, ...]:
    """Signatures "prefill" and "decode" that share a counter."""
    return counter("prefill"), replace_main(
        counter("decode"), lambda c, x: (c * x, c * x)
    )


def replace_main(model: Model, main: Callable[..., Any]) -> Model:
    model.main = main
    return model


def random() -> Model:
    """Draws from the seed in the state slot of the seed, which counts up."""

    def main(rng: Any, x: Any) -> Any:
        key = jax.random.wrap_key_data(rng, impl="threefry2x32")
        return x + jax.random.uniform(key, (3,)), rng + jnp.array([0, 1], jnp.uint32)

    spec = ((3,), "float32")
    return Model(
        signature({"x": spec}, {"y": spec}, state=(TensorSpec(RNG, (2,), "uint32"),)),
        main,
        weights={RNG: np.zeros(2, np.uint32)},
    )


def native() -> Model:
    """As add, always with an executable."""
    model = add()
    model.compiled = ({},)
    return model


def on_tpu() -> Model:
    """As linear, with executables that say they are a TPU's; they run on this CPU."""
    model = linear()
    model.platform = "tpu"
    model.compiled = ({},)
    return model


def keep() -> Model:
    """No outputs: x becomes the state."""
    spec = TensorSpec("kept", (1 << 20,), "float32")
    empty = signature({"x": (spec.shape, "float32")}, {}, state=(spec,))
    weights = {"kept": np.zeros(spec.shape, np.float32)}
    return Model(empty, lambda kept, x: (x * 1,), weights=weights)


def scaled() -> Model:
    """n values times a weight that prepare squares."""
    return Model(
        signature(
            {"x": (("n",), "float32")}, {"y": (("n",), "float32")}, dims=(Dim("n"),)
        ),
        lambda w, x: (w * x,),
        weights={"w": np.array(3, np.float32)},
        leading=(Slot("prepared", "square", (), "float32"),),
        prepare=lambda w: (w * w,),
    )


def scaled_on_tpu() -> Model:
    """As scaled, with executables of two sizes that say they are a TPU's."""
    model = scaled()
    model.platform = "tpu"
    model.compiled = ({"n": 2}, {"n": 3})
    return model


def with_entry(model: Model, prefix: str, payload: bytes) -> Model:
    """Write other bytes where an entry of that prefix would go."""
    model.entries[prefix] = payload
    return model


MODELS: dict[str, Callable[[], Model | tuple[Model, ...]]] = {
    "add": add, "linear": linear, "counter": counter, "dynamic": dynamic,
    "constrained": constrained,
    "ranged": ranged, "engines": engines,
    "mutating": mutating, "two": two, "random": random, "keep": keep, "scaled": scaled,
    "on tpu": on_tpu, "scaled on tpu": scaled_on_tpu,
    "garbage": lambda: with_entry(add(), "programs/", b"no StableHLO"),
    "no native": lambda: with_entry(native(), "executables/", b"no executable"),
}  # fmt: skip


@pytest.fixture(scope="session")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """artifact(name, **options of write) -> path of that model, written once."""
    made: dict[str, Path] = {}

    def make(name: str, **options: Any) -> Path:
        key = name if not options else ""
        if key not in made:
            folder = tmp_path_factory.mktemp("artifacts")
            built = MODELS[name]()
            models = built if isinstance(built, tuple) else (built,)
            made[key] = write(folder / f"{name}.tpuexe", *models, **options)
        return made[key] if key else made.pop("")

    return make

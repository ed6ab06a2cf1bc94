"""One signature, ready to run: its code for each set of sizes, its prepared weights."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

import jax

from tpu_export.runtime.artifact import Artifact
from tpu_export.runtime.counts import Counts
from tpu_export.runtime.devices import host_features
from tpu_export.runtime.executables import (
    CompileError,
    ExecutionError,
    Flat,
    NoExecutableError,
    UnknownPolicyError,
    compile_portable,
    load_executable,
    mismatch,
)
from tpu_export.runtime.litert import CpuEngineName, LiteRtForms
from tpu_export.runtime.manifest import CountFunction, Executable, buckets
from tpu_export.runtime.manifest import Program as Portable
from tpu_export.runtime.signature import (
    FunctionSpec,
    layout_prepare_spec,
    leading_slots,
    sizes_text,
)
from tpu_export.runtime.stablehlo import portable_callable, static_shapes
from tpu_export.runtime.weights import Weights

Policy: TypeAlias = Literal["auto", "never", "require"]
MAX_SIZES = 32  # compiled sets of dynamic sizes kept per signature


Arrays: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True)
class _Code:
    """Main for one set of sizes.

    Codes of one `arrangement` share main's leading arguments: weights lie on the device once,
    however many sizes there are.
    """

    run: Flat
    arrangement: str
    arrange: Callable[[Weights], Arrays]
    origin: str
    fixed: bool = False  # the weights' values are in it


class Runner:
    """Runs one signature on one device.

    Attributes:
        portable: the signature's programs in the artifact.
        origin: where the code that ran last, or will run first, came from.
        compilations: how often XLA had to compile.
    """

    def __init__(
        self,
        artifact: Artifact,
        portable: Portable,
        device: Any,
        policy: Policy,
        cpu_engine: CpuEngineName = "auto",
    ) -> None:
        if policy not in get_args(Policy):
            raise UnknownPolicyError(
                f"executables={policy!r} is no policy",
                hint=f"executables is one of {', '.join(get_args(Policy))}",
            )
        self._artifact = artifact
        self.portable = portable
        self.signature = portable.signature
        self._device = device
        self._policy = policy
        self._lock = threading.Lock()
        self._codes: OrderedDict[tuple[tuple[str, int], ...], _Code] = OrderedDict()
        self._leading: dict[str, Arrays] = {}
        self._prepare: Flat | None = None
        self._counts = Counts(portable, self._compiled_count, self._put)
        skipped = cpu_engine == "auto" and policy == "never"
        self._litert = LiteRtForms(
            artifact, portable, device, "xla" if skipped else cpu_engine
        )
        self.compilations = 0
        self.origin = ""

    def ready(self, weights: Weights) -> None:
        """Load what can be loaded before the first call."""
        found = self._executables()
        if not self.signature.dims and not self.signature.counted:
            self._code({}, weights)
        elif found:
            self._code(found[0].dims, weights)
        else:
            self.origin = "compiled from StableHLO at the first call of each size"

    def forget(self) -> None:
        """Drop everything that depends on the weights' values; code does not."""
        self._counts.forget()
        self._litert.forget()
        with self._lock:
            self._leading.clear()
            for key in [k for k, code in self._codes.items() if code.fixed]:
                del self._codes[key]

    def run(
        self, weights: Weights, dims: Mapping[str, int], rest: Sequence[Any]
    ) -> list[Any]:
        """Run main on state and input arrays; returns its results in order, complete.

        Raises:
            ExecutionError: the device failed; state that was donated is lost.
            CountError: the data gives a size that the model was not captured for.
        """
        try:
            dims, sizes = self._counts.of(weights, dims, rest)
            run, leading = self._code(dims, weights)
            results = run([*leading, *rest, *sizes])
            # What was put without a copy is the caller's again when this returns.
            return list(jax.block_until_ready(results))
        except jax.errors.JaxRuntimeError as error:
            raise ExecutionError(
                f"{self.signature.name} failed on {self._device}: {_line(error)}",
                hint="look at the device's memory; load with executables='never' if that is well",
            ) from error

    def _code(self, dims: Mapping[str, int], weights: Weights) -> tuple[Flat, Arrays]:
        key = tuple(sorted(dims.items()))
        with self._lock:
            if key not in self._codes:
                self._codes[key] = self._load(dims)
                while len(self._codes) > MAX_SIZES:
                    self._codes.popitem(last=False)
            self._codes.move_to_end(key)
            code = self._codes[key]
            self.origin = code.origin
            if code.arrangement not in self._leading:
                self._leading[code.arrangement] = code.arrange(weights)
            return code.run, self._leading[code.arrangement]

    @property
    def buckets(self) -> tuple[Mapping[str, int], ...]:
        """The sizes that the artifact has an executable for on this device, each once."""
        return tuple(buckets(self._executables()))

    def _executables(self) -> list[Executable]:
        platform = self._device.platform
        return [
            e
            for e in self._artifact.manifest.executables
            if e.signature == self.signature.name and e.platform == platform
        ]

    def _load(self, dims: Mapping[str, int]) -> _Code:
        form = self._litert.load(dims)
        if callable(form):
            return _Code(form, "litert", _nothing, "LiteRT form", fixed=True)
        code = self._load_xla(dims)
        return replace(code, origin=f"{code.origin}; {form}") if form else code

    def _load_xla(self, dims: Mapping[str, int]) -> _Code:
        reason = "the caller asked for it"
        if self._policy != "never":
            reason = self._no_executable(dims)
            for executable in self._executables():
                if executable.dims == dict(dims):
                    found = self._from_executable(executable)
                    if isinstance(found, _Code):
                        return found
                    reason = found
        if self._policy == "require":
            raise NoExecutableError(
                f"no executable of {self.signature.name!r} may be used: {reason}",
                hint='load with executables="auto" to compile from StableHLO instead',
            )
        return self._from_portable(dims, reason)

    def _no_executable(self, dims: Mapping[str, int]) -> str:
        if self.signature.counted:
            names = ", ".join(dim.name for dim in self.signature.counted)
            return (
                f"the data decides {names}, and for such sizes an artifact holds none"
            )
        there = ", ".join(sizes_text(sizes) for sizes in self.buckets if sizes)
        if dims and there:
            return f"the artifact has no executable for {sizes_text(dims)}, but for {there}"
        return "the artifact holds no executable for this device and these sizes"

    def _from_executable(self, executable: Executable) -> _Code | str:
        """Return the code of an executable, or why it may not be used."""
        cpu = self._device.platform == "cpu"
        features = host_features() if cpu else ()
        reason = mismatch(executable.compiler, self._device, features)
        if reason:
            return reason
        try:
            main = self._native(executable.main)
            prepare = self._native(executable.prepare) if executable.prepare else None
        except (RuntimeError, ValueError) as error:
            return f"its executable cannot be loaded: {_line(error)}"
        sizes = f" {sizes_text(executable.dims)}" if executable.dims else ""
        origin = f"executable {executable.platform}/{executable.topology}{sizes}"
        if cpu:
            self._prepare = self._prepare or prepare
            return _Code(main, "", self._in_order, origin)
        arrange = partial(self._laid_out, prepare)
        # Sizes whose prepare is one entry lay weights out alike, and share them.
        return _Code(main, executable.prepare or "", arrange, origin)

    def _native(self, entry: str) -> Flat:
        return load_executable(bytes(self._artifact.entry(entry)), self._device)

    def _laid_out(self, prepare: Flat | None, weights: Weights) -> Arrays:
        """On TPU prepare takes every weight and gives main's leading arguments."""
        if prepare is None:
            return ()
        spec = layout_prepare_spec(self.portable.main, self.portable.prepare)
        return tuple(prepare([self._put(weights[s.name]) for s in spec.arguments]))

    def _in_order(self, weights: Weights) -> Arrays:
        """Return main's leading arguments as the portable program takes them."""
        computed = iter(self._computed(weights))
        return tuple(
            next(computed) if slot.kind == "prepared" else self._put(weights[slot.name])
            for slot in leading_slots(self.portable.main)
        )

    def _computed(self, weights: Weights) -> Arrays:
        spec = self.portable.prepare
        if spec is None:
            return ()
        if self._prepare is None:
            self._prepare = self._compiled_prepare(spec)
        arrays = [self._put(weights[slot.name]) for slot in spec.arguments]
        # Raw weights that only prepare takes leave the device here.
        return tuple(jax.block_until_ready(self._prepare(arrays)))

    def _from_portable(self, dims: Mapping[str, int], reason: str) -> _Code:
        spec = self.portable.main
        function = self._function(self.portable.main_modules, spec)
        donated = [i for i, s in enumerate(spec.arguments) if s.kind == "state"]
        shapes = static_shapes(spec.arguments, dims)
        run = self._compile(function, shapes, donated)
        return _Code(run, "", self._in_order, f"compiled from StableHLO: {reason}")

    def _compiled_count(self, count: CountFunction, dims: Mapping[str, int]) -> Flat:
        function = self._function(count.modules, count.spec)
        return self._compile(function, static_shapes(count.spec.arguments, dims), ())

    def _compiled_prepare(self, spec: FunctionSpec) -> Flat:
        function = self._function(self.portable.prepare_modules, spec)
        return self._compile(function, static_shapes(spec.arguments, {}), ())

    def _compile(
        self,
        function: Callable[..., Any],
        shapes: Sequence[Any],
        donated: Sequence[int],
    ) -> Flat:
        self.compilations += 1
        try:
            return compile_portable(function, shapes, self._device, donated)
        except Exception as error:  # JAX, MLIR and XLA share no base
            raise CompileError(
                f"{self.signature.name} cannot be compiled for {self._device}: "
                f"{_line(error)}",
                hint="export the model again, with the jax of this host if it is newer",
            ) from error

    def _function(
        self, modules: Mapping[str, str], spec: FunctionSpec
    ) -> Callable[..., Any]:
        platform = self._device.platform
        entry = modules.get(platform, modules[""])
        return portable_callable(bytes(self._artifact.entry(entry)), spec, platform)

    def _put(self, array: Any) -> Any:
        with jax.enable_x64(True):
            return jax.device_put(array, self._device)


def _nothing(weights: Weights) -> Arrays:
    return ()


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]

"""One signature, ready to run: its code for each set of sizes, its prepared weights."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import jax

from tpu_export.runtime.artifact import Artifact
from tpu_export.runtime.devices import host_features
from tpu_export.runtime.errors import TpuExportError
from tpu_export.runtime.executables import (
    Flat,
    compile_portable,
    load_executable,
    mismatch,
)
from tpu_export.runtime.manifest import Executable
from tpu_export.runtime.manifest import Program as Portable
from tpu_export.runtime.signature import FunctionSpec, Slot
from tpu_export.runtime.stablehlo import portable_callable, static_shapes
from tpu_export.runtime.weights import Weights

Policy: TypeAlias = Literal["auto", "never", "require"]
MAX_SIZES = 32  # compiled sets of dynamic sizes kept per signature


class NoExecutableError(TpuExportError):
    """executables="require", and none in the artifact may be used here."""

    code = "TPX-0503"


@dataclass(frozen=True)
class _Code:
    run: Flat
    leading: tuple[Any, ...]  # main's weight and prepared arguments, on the device
    origin: str


class Runner:
    """Runs one signature on one device.

    Attributes:
        portable: the signature's programs in the artifact.
        origin: where the code that ran last, or will run first, came from.
        compilations: how often XLA had to compile.
    """

    def __init__(
        self, artifact: Artifact, portable: Portable, device: Any, policy: Policy
    ) -> None:
        self._artifact = artifact
        self.portable = portable
        self.signature = portable.signature
        self._device = device
        self._policy = policy
        self._lock = threading.Lock()
        self._codes: OrderedDict[tuple[tuple[str, int], ...], _Code] = OrderedDict()
        self._prepared: dict[str, tuple[Any, ...]] = {}
        self.compilations = 0
        self.origin = ""

    def ready(self, weights: Weights) -> None:
        """Load what can be loaded before the first call."""
        found = self._executables()
        if not self.signature.dims:
            self._code({}, weights)
        elif found:
            self._code(found[0].dims, weights)
        else:
            self.origin = "compiled from StableHLO at the first call of each size"

    def forget(self) -> None:
        """Drop everything that depends on the weights."""
        with self._lock:
            self._codes.clear()
            self._prepared.clear()

    def run(
        self, weights: Weights, dims: Mapping[str, int], rest: Sequence[Any]
    ) -> list[Any]:
        """Run main on state and input arrays; returns its results in order."""
        code = self._code(dims, weights)
        return code.run([*code.leading, *rest])

    def _code(self, dims: Mapping[str, int], weights: Weights) -> _Code:
        key = tuple(sorted(dims.items()))
        with self._lock:
            if key not in self._codes:
                self._codes[key] = self._load(dims, weights)
                while len(self._codes) > MAX_SIZES:
                    self._codes.popitem(last=False)
            self._codes.move_to_end(key)
            code = self._codes[key]
            self.origin = code.origin
            return code

    def _executables(self) -> list[Executable]:
        platform = self._device.platform
        return [
            e
            for e in self._artifact.manifest.executables
            if e.signature == self.signature.name and e.platform == platform
        ]

    def _load(self, dims: Mapping[str, int], weights: Weights) -> _Code:
        reason = "the caller asked for it"
        if self._policy != "never":
            reason = "the artifact holds no executable for this device and these sizes"
            for executable in self._executables():
                if executable.dims == dict(dims):
                    reason = self._refusal(executable) or ""
                    if not reason:
                        return self._from_executable(executable, weights)
        if self._policy == "require":
            raise NoExecutableError(
                f"no executable of {self.signature.name!r} may be used: {reason}",
                hint='load with executables="auto" to compile from StableHLO instead',
            )
        return self._from_portable(dims, weights, reason)

    def _refusal(self, executable: Executable) -> str | None:
        features = host_features() if self._device.platform == "cpu" else ()
        return mismatch(executable.compiler, self._device, features)

    def _from_executable(self, executable: Executable, weights: Weights) -> _Code:
        main = self._native(executable.main)
        origin = f"executable {executable.platform}/{executable.topology}"
        if self._device.platform == "cpu":
            leading = self._leading(executable.prepare, weights)
        else:
            leading = self._laid_out(executable, weights)
        return _Code(main, leading, origin)

    def _native(self, entry: str) -> Flat:
        return load_executable(bytes(self._artifact.entry(entry)), self._device)

    def _laid_out(self, executable: Executable, weights: Weights) -> tuple[Any, ...]:
        """On TPU prepare takes every weight and gives main's leading arguments."""
        if executable.prepare is None:
            return ()
        spec = layout_prepare_spec(self.portable.main, self.portable.prepare)
        arrays = [self._put(weights[slot.name]) for slot in spec.arguments]
        return tuple(self._native(executable.prepare)(arrays))

    def _leading(self, native: str | None, weights: Weights) -> tuple[Any, ...]:
        """Return main's leading arguments; what prepare computes is computed once."""
        computed = iter(self._computed(native, weights))
        return tuple(
            next(computed) if slot.kind == "prepared" else self._put(weights[slot.name])
            for slot in leading_slots(self.portable.main)
        )

    def _computed(self, native: str | None, weights: Weights) -> tuple[Any, ...]:
        spec = self.portable.prepare
        if spec is None:
            return ()
        if "cpu" not in self._prepared:
            arrays = [self._put(weights[slot.name]) for slot in spec.arguments]
            run = self._native(native) if native else self._compiled_prepare(spec)
            self._prepared["cpu"] = tuple(run(arrays))
        return self._prepared["cpu"]

    def _from_portable(
        self, dims: Mapping[str, int], weights: Weights, reason: str
    ) -> _Code:
        spec = self.portable.main
        function = self._function(self.portable.main_modules, spec)
        donated = [i for i, s in enumerate(spec.arguments) if s.kind == "state"]
        shapes = static_shapes(spec.arguments, dims)
        run = self._compile(function, shapes, donated)
        leading = self._leading(None, weights)
        return _Code(run, leading, f"compiled from StableHLO: {reason}")

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
        return compile_portable(function, shapes, self._device, donated)

    def _function(
        self, modules: Mapping[str, str], spec: FunctionSpec
    ) -> Callable[..., Any]:
        platform = self._device.platform
        entry = modules.get(platform, modules[""])
        return portable_callable(bytes(self._artifact.entry(entry)), spec, platform)

    def _put(self, array: Any) -> Any:
        with jax.enable_x64(True):
            return jax.device_put(array, self._device)


def leading_slots(main: FunctionSpec) -> tuple[Slot, ...]:
    """Return main's arguments that come from weights."""
    return tuple(s for s in main.arguments if s.kind in ("weight", "prepared"))


def layout_prepare_spec(
    main: FunctionSpec, prepare: FunctionSpec | None
) -> FunctionSpec:
    """Return the calling convention of a TPU executable's prepare.

    It takes every raw weight once, prepare's first, and gives every leading argument of
    main in the layout that main's compiler chose.
    """
    leading = leading_slots(main)
    raw = [*(prepare.arguments if prepare else ()), *leading]
    weights = {slot.name: slot for slot in raw if slot.kind == "weight"}
    return FunctionSpec(tuple(weights.values()), leading)

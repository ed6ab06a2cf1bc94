"""Load a .tpuexe and call it: numpy in, numpy out, torch nowhere."""

from __future__ import annotations

import threading
from collections.abc import Mapping, MutableMapping
from contextlib import nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import jax
import numpy as np

from tpu_export.runtime.artifact import Artifact
from tpu_export.runtime.devices import choose_device
from tpu_export.runtime.errors import TpuExportError
from tpu_export.runtime.inputs import BoundCall, InputError, bind_call
from tpu_export.runtime.litert import CpuEngineName
from tpu_export.runtime.runner import Policy, Runner
from tpu_export.runtime.signature import RNG, Signature
from tpu_export.runtime.state import State
from tpu_export.runtime.tensors import Array
from tpu_export.runtime.trees import unflatten
from tpu_export.runtime.weights import Weights


class UnknownSignatureError(TpuExportError):
    """The artifact has no signature of that name."""

    code = "TPX-0504"


class ClosedError(TpuExportError):
    """The program was closed."""

    code = "TPX-0507"


def load(
    path: str | Path,
    *,
    device: str = "auto",
    executables: Policy = "auto",
    cpu_engine: CpuEngineName = "auto",
    verify: Literal["programs", "all"] = "programs",
) -> Program:
    """Load an artifact.

    Args:
        path: of a .tpuexe.
        device: "auto" (a TPU when there is one, else the CPU), "cpu", "tpu" or "tpu:N".
        executables: "auto" uses a matching executable and compiles from StableHLO
            otherwise; "never" always compiles, so no native code of the file is run;
            "require" refuses when none matches.
        cpu_engine: on a CPU, "auto" runs what was chosen at export (`--cpu-engine`), "xla"
            or "litert" that engine and no other.
        verify: what is checked against the manifest's hashes: code always, and with "all"
            the weights too.

    Raises:
        ArtifactCorruptedError: the file breaks a rule of the format.
        ArtifactVersionError: it was made by a newer tpu-export.
        NoTpuError: a TPU was asked for and there is none.
        NoExecutableError: with "require", when none matches; with "litert", when the
            artifact has no LiteRT form that can be used here.
        UnknownCpuEngineError: `cpu_engine` is another name.
    """
    artifact = Artifact(path)
    if verify == "all":
        artifact.verify()
    return Program(artifact, choose_device(device), executables, cpu_engine)


class Program:
    """A loaded artifact. Calls are thread-safe; those that change state take turns.

    Calling the program calls its only signature, or the one named "forward"; index it for
    another: ``program["decode"](token)``.
    """

    def __init__(
        self,
        artifact: Artifact,
        device: Any,
        policy: Policy,
        cpu_engine: CpuEngineName = "auto",
    ) -> None:
        self._artifact: Artifact | None = artifact  # None when closed
        self._device = device
        self._lock = threading.RLock()
        self._weights = Weights(artifact)
        programs = artifact.manifest.programs
        self._runners = {
            name: Runner(artifact, portable, device, policy, cpu_engine)
            for name, portable in programs.items()
        }
        self._slots = {s.name: s for p in programs.values() for s in p.signature.state}
        self._state: dict[str, Any] = {}
        self.reset_state()
        for runner in self._runners.values():
            runner.ready(self._weights)

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """What each signature takes, returns and keeps."""
        return {name: r.signature for name, r in self._runners.items()}

    @property
    def device(self) -> str:
        """The device that computes: "cpu" or "tpu:N"."""
        platform = str(self._device.platform)
        return platform if platform == "cpu" else f"{platform}:{self._device.id}"

    @property
    def origin(self) -> dict[str, str]:
        """Where each signature's code came from: an executable, or recompiled and why."""
        return {name: r.origin for name, r in self._runners.items()}

    @property
    def compilations(self) -> int:
        """How often XLA had to compile since the artifact was loaded."""
        return sum(r.compilations for r in self._runners.values())

    @property
    def weight_names(self) -> tuple[str, ...]:
        """The names that update_weights takes."""
        return tuple(n for n in self._weights if n not in self._slots)

    @property
    def state(self) -> MutableMapping[str, Array]:
        """The state slots: reading gives a copy, assigning replaces the value."""
        return State(self)

    def __getitem__(self, name: str) -> _Callable:
        runners = self._open()
        if name not in runners:
            raise UnknownSignatureError(
                f"no signature {name!r}", hint=f"signatures are {', '.join(runners)}"
            )
        return _Callable(self, runners[name])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the only signature, or "forward"."""
        runners = self._open()
        name = next(iter(runners)) if len(runners) == 1 else "forward"
        return self[name](*args, **kwargs)

    def reset_state(self) -> None:
        """Put every state slot back to its value at export."""
        self._open()
        with self._lock:
            for name in self._slots:
                self._state[name] = self._own(self._weights[name])

    def seed(self, value: int) -> None:
        """Start the random numbers of a model that draws them anew."""
        halves = [value >> 32 & 0xFFFFFFFF, value & 0xFFFFFFFF]
        for name in (RNG, *(f"{signature}.{RNG}" for signature in self._open())):
            if name in self._slots:
                self.state[name] = np.array(halves, np.uint32)

    def update_weights(self, values: Mapping[str, Any]) -> None:
        """Replace weights by name; weight-only work is done again.

        Raises:
            WeightUpdateError: unknown names, other shapes or dtypes: all of them.
        """
        runners = self._open()
        with self._lock:
            self._weights.update(values, self.weight_names)
            for runner in runners.values():
                runner.forget()
                runner.ready(self._weights)

    def close(self) -> None:
        """Let go of the device's memory; later calls raise ClosedError."""
        with self._lock:
            self._artifact = None
            self._runners, self._state = {}, {}

    def __enter__(self) -> Program:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _open(self) -> dict[str, Runner]:
        if self._artifact is None:
            raise ClosedError("the program is closed", hint="load the artifact again")
        return self._runners

    def _own(self, array: Any) -> Any:
        """Return a device array that shares no memory with the caller or the file."""
        with jax.enable_x64(True):
            return jax.device_put(np.array(array), self._device, may_alias=False)

    def _call(
        self, runner: Runner, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        self._open()
        signature = runner.signature
        call = bind_call(signature, args, kwargs)
        written = _writable(signature, call)
        with jax.enable_x64(True):
            inputs = [jax.device_put(a, self._device) for a in call.arrays]
        outputs, new_inputs = self._run(runner, call, inputs)
        arrays = [np.array(output) for output in outputs]
        for target, value in zip(written, new_inputs, strict=True):
            target[...] = np.asarray(value)
        return unflatten(signature.output_tree, arrays)

    def _run(
        self, runner: Runner, call: BoundCall, inputs: list[Any]
    ) -> tuple[list[Any], list[Any]]:
        """Run main; returns outputs and new values of written inputs, keeps new state."""
        slots = [slot.name for slot in runner.signature.state]
        n, m = len(runner.signature.outputs), len(slots)
        with self._lock if slots else nullcontext():
            self._open()
            state = [self._state[name] for name in slots]
            results = runner.run(self._weights, call.dims, [*state, *inputs])
            self._state |= zip(slots, results[n : n + m], strict=True)
        return results[:n], results[n + m :]


class _Callable:
    """One signature of a program."""

    def __init__(self, program: Program, runner: Runner) -> None:
        self._program = program
        self._runner = runner

    @property
    def signature(self) -> Signature:
        """What it takes, returns and keeps."""
        return self._runner.signature

    @property
    def buckets(self) -> tuple[Mapping[str, int], ...]:
        """Sizes of dynamic dimensions that run without a compilation on this device."""
        return self._runner.buckets

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it: arrays in, arrays in the model's structure out.

        Raises:
            InputError: the arguments do not fit; says all that is wrong.
        """
        return self._program._call(self._runner, args, kwargs)


def _writable(signature: Signature, call: BoundCall) -> list[Array]:
    """Return the caller's arrays that forward() writes to.

    Raises:
        InputError: one of them cannot be written to.
    """
    by_name = {s.name: g for s, g in zip(signature.inputs, call.given, strict=True)}
    arrays = [by_name[name] for name in signature.mutated_inputs]
    for name, array in zip(signature.mutated_inputs, arrays, strict=True):
        if not isinstance(array, np.ndarray) or not array.flags.writeable:
            raise InputError(
                f"forward() writes to {name!r}, which is no writable numpy array",
                hint="pass a numpy array of your own, it gets the new values",
            )
    return arrays

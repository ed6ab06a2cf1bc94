"""The LiteRT form of a signature: a .tflite of the artifact, run in LiteRT's Interpreter.

A CPU alternative to XLA. Its weights are constants of the file; state is passed in and out.
"""

from __future__ import annotations

import importlib.util
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

import jax
import numpy as np

from tpu_export.runtime.artifact import Artifact
from tpu_export.runtime.errors import TpuExportError
from tpu_export.runtime.executables import ExecutionError, Flat, NoExecutableError
from tpu_export.runtime.manifest import CpuEngine, Program, litert_signature
from tpu_export.runtime.signature import FunctionSpec, litert_names, sizes_text

CpuEngineName: TypeAlias = Literal["auto", "xla", "litert"]


class UnknownCpuEngineError(TpuExportError):
    """A CPU engine that is none of auto, xla and litert."""

    code = "TPX-0513"


class LiteRtForms:
    """The LiteRT forms that an artifact has of one signature, by sizes.

    Args:
        wanted: "auto" takes what was chosen at export, "xla" none, "litert" nothing else.

    Raises:
        UnknownCpuEngineError: `wanted` is another name.
    """

    def __init__(
        self, artifact: Artifact, portable: Program, device: Any, wanted: CpuEngineName
    ) -> None:
        if wanted not in get_args(CpuEngineName):
            raise UnknownCpuEngineError(
                f"unknown CPU engine {wanted!r}",
                hint=f"engines are {', '.join(get_args(CpuEngineName))}",
            )
        self._artifact, self._portable, self._device = artifact, portable, device
        self._wanted = wanted
        self._stale = False

    def forget(self) -> None:
        """Weights have changed, and the files have the old ones."""
        self._stale = True

    def load(self, dims: Mapping[str, int]) -> Flat | str:
        """Return the form for these sizes, or why XLA runs instead ("" = as intended).

        Raises:
            NoExecutableError: LiteRT and nothing else is wanted, and cannot be had.
        """
        if self._wanted == "xla" or self._device.platform != "cpu":
            return ""
        found = self._find(dims)
        reason = found if isinstance(found, str) else self._missing()
        if not reason and isinstance(found, CpuEngine):
            try:
                return self._loaded(found)
            except (RuntimeError, ValueError) as error:
                reason = f"LiteRT cannot load its form: {_line(error)}"
        if self._wanted == "litert":
            raise NoExecutableError(
                f"{self._portable.signature.name!r} cannot run in LiteRT: "
                f"{reason or 'the artifact has no LiteRT form of it'}",
                hint='load with cpu_engine="auto", or export with --cpu-engine litert',
            )
        return reason

    def _find(self, dims: Mapping[str, int]) -> CpuEngine | str:
        name = self._portable.signature.name
        own = [e for e in self._artifact.manifest.cpu_engines if e.signature == name]
        forms = [e for e in own if e.engine == "litert"]
        for form in forms:
            if form.dims == dict(dims):
                return form
        there = ", ".join(sizes_text(f.dims) for f in forms if f.dims)
        return f"LiteRT forms are for {there}" if there else ""

    def _missing(self) -> str:
        if self._stale:
            return "the LiteRT form has the weights of before the update"
        if importlib.util.find_spec("ai_edge_litert") is None:
            return "the LiteRT form needs ai-edge-litert, which is not installed"
        return ""

    def _loaded(self, form: CpuEngine) -> Flat:
        data = bytes(self._artifact.entry(str(form.main)))
        name = litert_signature(form.signature, form.dims)
        return load_litert(data, name, self._portable.main, self._device)


def load_litert(data: bytes, signature: str, spec: FunctionSpec, device: Any) -> Flat:
    """Return a signature of a .tflite as a function of main's state and inputs, in order.

    Args:
        data: the file.
        signature: its name in the file.
        spec: main's calling convention; leading arguments are not passed.
        device: that XLA uses; state that comes back is put there, as XLA's own is.

    Raises:
        ValueError: LiteRT cannot load the file.
    """
    from ai_edge_litert.interpreter import Interpreter

    threads = len(os.sched_getaffinity(0))
    engine = Interpreter(model_content=data, num_threads=threads)
    runner = engine.get_signature_runner(signature)
    rest = [s for s in spec.arguments if s.kind in ("state", "input")]
    names = litert_names(rest, result=False)
    results = litert_names(spec.results, result=True)
    kept = [s.kind == "state" for s in spec.results]
    turn = threading.Lock()  # an Interpreter has one set of buffers

    def run(arrays: Sequence[Any]) -> list[Any]:
        feeds = dict(zip(names, map(np.asarray, arrays), strict=True))
        try:
            with turn:
                found = runner(**feeds)
        except (RuntimeError, ValueError) as error:
            raise ExecutionError(
                f"{signature} failed in LiteRT: {_line(error)}",
                hint='load with cpu_engine="xla", and report the model',
            ) from error
        with jax.enable_x64(True):
            return [
                jax.device_put(found[name], device, may_alias=False)
                if state
                else found[name]
                for name, state in zip(results, kept, strict=True)
            ]

    return run


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]

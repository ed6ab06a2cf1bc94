"""Environments of the peers: made once, in a cache folder, with pinned versions."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parent.parent
LITERT_TORCH = "litert-torch==0.10.0"
EXECUTORCH = "executorch==1.5.1"
_SHARED = ("numpy", "torch", "ai-edge-litert")
_ZOO = ("transformers", "accelerate", "gguf", "matplotlib", "pillow")


class UnavailableError(Exception):
    """An environment cannot be made here; the installer's last words."""


def litert_torch() -> Path:
    """Return the python that has litert-torch, its quantizer and the zoo's packages."""
    return _made(LITERT_TORCH, (*_SHARED, "ai-edge-quantizer", *_ZOO), zoo=True)


def executorch() -> Path:
    """Return the python that has ExecuTorch and the LiteRT runtime."""
    return _made(EXECUTORCH, _SHARED, zoo=False)


def _made(package: str, beside: tuple[str, ...], *, zoo: bool) -> Path:
    folder = cache() / package.replace("==", "-")
    python = folder / "bin" / "python"
    ready = folder / ".ready"
    if ready.exists():
        return python
    _run(sys.executable, "-m", "venv", "--clear", str(folder))
    pins = folder / "constraints.txt"
    # The very torch of this environment: the models must be the same.
    pins.write_text("".join(f"{n}=={_plain(n)}\n" for n in beside))
    install = [str(python), "-m", "pip", "install", "--quiet", "-c", str(pins)]
    _run(*install, "torch")
    _run(*install, package, *beside)
    if zoo:
        needed = ROOT / "model_zoo" / "requirements.txt"
        _run(*install, "--no-deps", "-r", str(needed))
    ready.touch()
    return python


def _plain(name: str) -> str:
    return version(name).partition("+")[0]


def cache() -> Path:
    """Return the folder for environments; TPU_EXPORT_BENCH_CACHE says another."""
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    default = home / "tpu-export" / "bench"
    return Path(os.environ.get("TPU_EXPORT_BENCH_CACHE", default))


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        errors = [s for s in done.stderr.splitlines() if s.startswith("ERROR")]
        said = " ".join(errors or done.stderr.splitlines()[-3:])
        message = f"{' '.join(command[1:5])} …: {said[:400]}"
        raise UnavailableError(message)

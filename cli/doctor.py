"""tpu-export doctor."""

from __future__ import annotations

import importlib.util
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

import tpu_export
from tpu_export.cli.cpu_check import cpu_runs
from tpu_export.cli.failures import UsageError
from tpu_export.cli.output import print_json, print_table

EXTRAS = {
    "export": ("torch",),
    "tpu": ("libtpu",),
    "litert": ("ai-edge-litert", "litert-converter", "ai-edge-quantizer"),
    "onnx": ("onnx", "onnxruntime"),
    "zoo": ("transformers", "gguf", "accelerate", "pillow", "matplotlib"),
}
CORE = ("jax", "jaxlib", "numpy", "ml_dtypes", "safetensors", "click", "rich")


@click.command("doctor")
@click.option(
    "--litert",
    is_flag=True,
    help="Try programs that LiteRT's converter is known to fail.",
)
@click.option(
    "--delegates",
    type=click.Path(path_type=Path),
    metavar="FILE.tflite",
    help="Try what LiteRT can accelerate of a file on this host.",
)
@click.option("--json", "as_json", is_flag=True)
def command(litert: bool, delegates: Path | None, as_json: bool) -> None:
    """Show versions, extras, and what this host can compile and run, and why not."""
    if litert and delegates is not None:
        raise UsageError(
            "--litert and --delegates are two examinations", hint="give one of them"
        )
    if litert:
        from tpu_export.cli.litert_selftest import show

        show(as_json=as_json)
        return
    if delegates is not None:
        from tpu_export.cli import litert_delegates

        litert_delegates.show(delegates, as_json=as_json)
        return
    found = examine()
    if as_json:
        print_json(found)
        return
    click.echo(f"tpu-export {found['tpu-export']} on {found['host']}")
    print_table([[name, v or "missing"] for name, v in found["versions"].items()])
    click.echo("")
    print_table([[k, v] for k, v in found["can"].items()])


def examine() -> dict[str, Any]:
    """Return what is installed and what works here."""
    packages = [*CORE, *(p for extra in EXTRAS.values() for p in extra)]
    return {
        "tpu-export": tpu_export.__version__,
        "host": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "versions": {name: _version(name) for name in packages},
        "can": {
            "capture and lower": _needs("torch", "export"),
            "compile for TPU": _tpu_compile(),
            "convert to LiteRT": _needs("litert_converter", "litert"),
            "run on the CPU": cpu_runs(),
            "run on a TPU": _tpu_run(),
        },
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _needs(module: str, extra: str) -> str:
    if importlib.util.find_spec(module) is None:
        return f'no: pip install "tpu-export[{extra}]"'
    return "yes"


def _tpu_run() -> str:
    from tpu_export.runtime.devices import missing_for_tpu

    missing = missing_for_tpu()
    return f"no: {missing}" if missing else "yes"


def _tpu_compile() -> str:
    from tpu_export.converters.tpu.capabilities import compile_capabilities

    found = compile_capabilities()
    if found.problem:
        return f"no: {found.problem}"
    return f"yes: libtpu {found.libtpu} answers for {', '.join(found.generations)}"

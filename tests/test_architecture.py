"""The layout and the import arrows of the design, checked on the source text."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("exporter", "runtime", "converters", "parity", "cli", "model_zoo")
OURS: dict[str, set[str]] = {
    "cli": {*PACKAGES},
    "parity": {"parity", "exporter", "converters", "runtime"},
    "exporter": {"exporter", "converters", "runtime"},
    "converters": {"converters", "runtime"},
    "model_zoo": {"model_zoo", "runtime"},
    "runtime": {"runtime"},
}
# What converters may know of the runtime: errors and the types of the artifact, and the one
# adapter to portable StableHLO.
CONVERTERS_MAY_IMPORT = {
    "errors",
    "signature",
    "manifest",
    "stablehlo",
    "devices",
    "dims",
    "expressions",
    "limits",
    "tensors",
}
RUNTIME_NEVER = {"torch", "transformers", "onnx", "litert_converter", "pickle"}
LIMIT_LINES = 300


def imports(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            module = node.module or ""
            yield from (f"{module}.{alias.name}" for alias in node.names)


def violations(package: str, source: str) -> list[str]:
    """Return the imports of `source` that a file of `package` may not have."""
    wrong = []
    for name in imports(source):
        parts = name.split(".")
        if parts[0] in PACKAGES:
            wrong.append(name)
        elif parts[0] == "tpu_export" and len(parts) > 1:
            allowed = OURS[package] | {"__version__"}
            if parts[1] not in allowed or (
                package == "converters"
                and parts[1] == "runtime"
                and parts[2] not in CONVERTERS_MAY_IMPORT
            ):
                wrong.append(name)
        elif package == "runtime" and parts[0] in RUNTIME_NEVER:
            wrong.append(name)
    return wrong


def files() -> list[Path]:
    return [p for d in PACKAGES for p in sorted((ROOT / d).rglob("*.py"))]


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_follow_the_arrows(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    assert violations(package, path.read_text()) == []


@pytest.mark.parametrize(
    ("package", "line"),
    [
        ("runtime", "import torch"),
        ("runtime", "import pickle"),
        ("runtime", "from tpu_export.exporter import capture"),
        ("converters", "from tpu_export.runtime.program import load"),
        ("converters", "from tpu_export.exporter.capture import capture"),
        ("exporter", "from tpu_export.parity.ladder import parity"),
        ("model_zoo", "import tpu_export.exporter.capture"),
        ("cli", "import exporter"),
    ],
)
def test_a_wrong_import_is_seen(package: str, line: str) -> None:
    assert violations(package, line) != []


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_files_stay_small(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LIMIT_LINES


def run(code: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return result.stdout


def test_import_is_lazy() -> None:
    heavy = (
        "import sys, tpu_export; print({'torch', 'jax', 'numpy'} & set(sys.modules))"
    )
    assert run(heavy).strip() == "set()"


def test_the_runtime_never_needs_torch() -> None:
    code = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "transformers"):
            raise ImportError(name)
sys.meta_path.insert(0, Block())
import pkgutil, importlib, tpu_export.runtime as runtime
for module in pkgutil.walk_packages(runtime.__path__, "tpu_export.runtime."):
    importlib.import_module(module.name)
print(sorted(m for m in sys.modules if m.startswith("tpu_export.")
    and not m.startswith("tpu_export.runtime")))
"""
    assert run(code).strip() == "[]"


def test_every_public_name_exists() -> None:
    code = """
import tpu_export
print([n for n in tpu_export.__all__ if not hasattr(tpu_export, n)])
"""
    assert run(code).strip() == "[]"

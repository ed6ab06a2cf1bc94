"""MODEL of the command line: named, configured, or the only one in the folder."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpu_export.cli.failures import UsageError
from tpu_export.cli.near import near_words, question

if TYPE_CHECKING:
    from tpu_export.exporter.sources import Source

FORMS = "path.py, path.py:factory, path.pt2, zoo:NAME, hf:DIR"


def source(text: str) -> Source:
    """Resolve a MODEL."""
    from tpu_export.exporter.sources import UnknownSourceError, resolve
    from tpu_export.model_zoo.zoo import entry, names

    try:
        return resolve(text, zoo=entry)
    except UnknownSourceError as error:
        wrong = _no_model(Path(text))
        if wrong is not None:
            raise UnknownSourceError(wrong[0], hint=wrong[1]) from error
        hint = question([f"zoo:{name}" for name in near_words(text, names(), 0.7)])
        if not hint:
            raise
        raise UnknownSourceError(
            error.message, hint=f"{hint} Else one of: {FORMS}"
        ) from error


def _no_model(path: Path) -> tuple[str, str] | None:
    """Say what a path is that is no model, and what to do with it."""
    if path.suffix == ".tpuexe":
        return (
            f"{path} is an artifact, not a model",
            f"`tpu-export inspect {path}` shows it, `tpu-export run {path}` runs it, "
            f"`tpu-export parity {path}` replays its recorded outputs; else name the model "
            "that it was exported from",
        )
    if path.suffix == ".tflite":
        return (
            f"{path} is a LiteRT file, not a model",
            "name the model that it was exported from; "
            f"`tpu-export doctor --delegates {path}` shows what XNNPACK takes of it",
        )
    if not path.is_dir():
        return None
    if (path / "config.json").is_file():
        return f"{path} is a directory", f"for its Hugging Face model, write hf:{path}"
    inside = [p for p in sorted(path.glob("*.py")) if defines_model(p)]
    inside += sorted(path.glob("*.pt2"))
    found = f"name a model in it: {', '.join(map(str, inside[:3]))}"
    return (
        f"{path} is a directory",
        found if inside else f"it holds no model; a model is one of: {FORMS}",
    )


def configuration(folder: Path) -> dict[str, Any]:
    """Return [tool.tpu-export] of the nearest pyproject.toml, {} when there is none.

    A model file in it is relative to that file's folder, an output to the current one.
    """
    for parent in [folder, *folder.parents]:
        path = parent / "pyproject.toml"
        if path.is_file():
            try:
                table = tomllib.loads(path.read_text())
            except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
                raise UsageError(
                    f"{path} is not valid TOML: {error}", hint="mend it, or name MODEL"
                ) from error
            tools = table.get("tool", {})
            found = tools.get("tpu-export", {}) if isinstance(tools, dict) else tools
            return _settings(path, found)
    return {}


def _settings(path: Path, found: Any) -> dict[str, Any]:
    """Check the types of the settings, and make a model file's path absolute."""
    if not isinstance(found, dict):
        raise UsageError(f"[tool.tpu-export] of {path} is no table", hint="mend it")
    for key in ("model", "target", "output"):
        if key in found and not isinstance(found[key], str):
            raise UsageError(f"{key} in {path} is no string", hint=f'write {key} = "…"')
    settings = dict(found)
    topologies = settings.get("topologies", [])
    if isinstance(topologies, str):
        settings["topologies"] = [topologies]
    elif not isinstance(topologies, list) or not all(
        isinstance(name, str) for name in topologies
    ):
        raise UsageError(
            f"topologies in {path} are no strings", hint='write topologies = ["v5e-1"]'
        )
    if settings.get("model", "").split(":")[0].endswith((".py", ".pt2")):
        settings["model"] = str(path.parent / settings["model"])
    return settings


def only_model(folder: Path) -> str:
    """Return the one model file of a folder, and say which.

    Raises:
        UsageError: there is none, or more than one.
    """
    found = [p for p in sorted(folder.glob("*.py")) if defines_model(p)]
    found += sorted(folder.glob("*.pt2"))
    if len(found) == 1:
        click.echo(f"model: {found[0].name} (the only one in this folder)", err=True)
        return str(found[0])
    names = ", ".join(p.name for p in found)
    what = f"several models in this folder: {names}" if found else "no MODEL given"
    raise UsageError(what, hint=f"name one: {FORMS}")


def defines_model(path: Path) -> bool:
    """Whether a file defines get_model() and get_inputs(); it is not imported."""
    try:
        body = ast.parse(path.read_text()).body
    except (SyntaxError, UnicodeDecodeError, OSError):
        return False
    names = {n.name for n in body if isinstance(n, ast.FunctionDef)}
    return {"get_model", "get_inputs"} <= names or "get_signatures" in names

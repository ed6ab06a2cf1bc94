"""A model from a Python file: get_model(), get_inputs() and their companions."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import torch
from torch.export import ExportedProgram

from tpu_export.converters.stablehlo.custom import forget
from tpu_export.exporter.capture import Example
from tpu_export.exporter.refusals import where
from tpu_export.exporter.sources import EntryPoint, Source
from tpu_export.runtime.errors import TpuExportError, with_article

TEMPLATE = (
    "define get_model() that returns an nn.Module, and get_inputs() that returns "
    "a tuple of its example inputs"
)
_INPUT_FORMS = "a tuple of args, a dict of kwargs, or (args tuple, kwargs dict)"
# Sibling modules that a model file imported: name -> folder.
_siblings: dict[str, Path] = {}


class ModelFileError(TpuExportError):
    """The model file is missing or is no Python file."""

    code = "TPX-0111"


class ModelImportError(TpuExportError):
    """The model file does not run: a syntax error, or an exception of its own."""

    code = "TPX-0112"


class FactoryError(TpuExportError):
    """get_model() or a companion is missing, fails or returns another thing."""

    code = "TPX-0113"


def python_source(text: str, path: Path, factory: str | None) -> Source:
    """Run a model file and call its factories.

    Raises:
        ModelFileError: there is no such file.
        ModelImportError: running it fails.
        TpuExportError: it called this package, which refused, such as lowers() a second rule.
        FactoryError: what it defines cannot be used.
    """
    path = path.resolve()
    with _importable(path.parent):
        module = load_module(path)
        if factory is None and hasattr(module, "get_signatures"):
            signatures = _call(module, "get_signatures")
            return Source(text, path.stem, path, _entry_points(path, signatures))
        model = _model(path, _call(module, factory or "get_model"))
        args, kwargs = _example(module, model, None)
        shapes = None
        if hasattr(module, "get_dynamic_shapes"):
            shapes = _shapes(path, _call(module, "get_dynamic_shapes"))
    entry = EntryPoint(model, args, kwargs, shapes)
    return Source(
        text=text,
        name=path.stem if factory is None else f"{path.stem}-{factory}",
        model_file=path,
        entry_points={"forward": entry},
        draw=_drawer(module, model),
    )


def load_module(path: Path) -> ModuleType:
    """Run a Python file as a module under a private name, so that pickling works.

    It may import its siblings.
    """
    if not path.is_file():
        near = ", ".join(sorted(p.name for p in path.parent.glob("*.py"))[:5])
        hint = (
            f"Python files there: {near}" if near else "give the path of a model file"
        )
        raise ModelFileError(f"no file {path}", hint=hint)
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:8]
    name = f"_tpu_export_{path.stem}_{digest}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ModelFileError(f"{path} is no Python file", hint=TEMPLATE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    forget(name)
    try:
        with _importable(path.resolve().parent):
            spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if not isinstance(error, Exception | SystemExit):
            raise
        if isinstance(error, TpuExportError):
            error.message += f", at {where(error) or path.name}"
            raise
        raise _import_error(path, error) from error
    return module


def _import_error(path: Path, error: Exception | SystemExit) -> ModelImportError:
    if isinstance(error, SyntaxError):
        place = f"{Path(error.filename or path).name}:{error.lineno}"
        line = (error.text or "").strip()
        said = f"{error.msg}: {line}" if line else error.msg
        return ModelImportError(f"syntax error at {place}: {said}", hint="correct it")
    hint = "run the file with python to see the whole traceback"
    if isinstance(error, ModuleNotFoundError):
        hint = f"install {error.name!r}, or put {error.name}.py beside {path.name}"
    place = where(error) or path.name
    said = f"{type(error).__name__}: {error}"
    return ModelImportError(f"{path.name} fails at {place}: {said}", hint=hint)


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Let the model file import its siblings, and not those of another model."""
    stale = [name for name, owner in _siblings.items() if owner != folder]
    for name in stale:
        if (folder / f"{name}.py").exists() or (folder / name).is_dir():
            sys.modules.pop(name, None)
            del _siblings[name]
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            origin = getattr(sys.modules[name], "__file__", None)
            if origin and Path(origin).is_relative_to(folder):
                _siblings[name] = folder


def _call(module: ModuleType, name: str, *args: object) -> object:
    """Call a factory of the model file."""
    path = Path(str(module.__file__))
    function = getattr(module, name, None)
    if not callable(function):
        raise FactoryError(f"{path} has no {name}()", hint=TEMPLATE)
    try:
        return function(*args)
    except TpuExportError:
        raise
    except (Exception, SystemExit) as error:
        place = where(error) or path.name
        raise FactoryError(
            f"{name}() fails at {place}: {type(error).__name__}: {error}",
            hint=f"correct {name}() in {path.name}",
        ) from error


def _model(path: Path, value: object) -> torch.nn.Module | ExportedProgram:
    if isinstance(value, torch.nn.Module | ExportedProgram) or callable(value):
        return value  # type: ignore[return-value]  # a function is captured as it is
    raise FactoryError(
        f"the model from {path.name} is {with_article(type(value).__name__)}",
        hint="return an nn.Module, a function or an ExportedProgram",
    )


def _example(module: ModuleType, model: object, seed: int | None) -> Example:
    """Return (args, kwargs) from get_inputs(), with a seed where it takes one."""
    if isinstance(model, ExportedProgram) and not hasattr(module, "get_inputs"):
        return (), {}
    function = getattr(module, "get_inputs", None)
    wants = _required(function)
    given = [seed if seed is not None else 0] if wants or seed is not None else []
    return as_example("get_inputs()", _call(module, "get_inputs", *given))


def as_example(name: str, value: object) -> Example:
    """Read example inputs in the three forms that a model file may give them."""
    if isinstance(value, torch.Tensor):
        return (value,), {}
    if isinstance(value, Mapping):
        return (), dict(value)
    if isinstance(value, tuple | list):
        match value:
            case [tuple() as args, dict() as kwargs] if all(
                isinstance(key, str) for key in kwargs
            ):
                return tuple(args), kwargs
        return tuple(value), {}
    raise FactoryError(
        f"{name} returns {with_article(type(value).__name__)}",
        hint=f"return {_INPUT_FORMS}",
    )


def _drawer(
    module: ModuleType, model: object
) -> Callable[[str, int], Example | None] | None:
    function = getattr(module, "get_inputs", None)
    if not callable(function) or not _parameters(function):
        return None
    return lambda _, seed: _example(module, model, seed)


def _required(function: object) -> bool:
    if not callable(function):
        return False
    return any(
        p.default is p.empty and p.kind <= p.KEYWORD_ONLY for p in _parameters(function)
    )


def _parameters(function: Callable[..., object]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except ValueError:  # a built-in that tells none, such as a partial of torch.randn
        return []


def _shapes(path: Path, value: object) -> Mapping[str, object] | None:
    if value is None or isinstance(value, Mapping | tuple | list):
        return value  # type: ignore[return-value]  # torch checks the rest
    raise FactoryError(
        f"get_dynamic_shapes() in {path.name} returns {with_article(type(value).__name__)}",
        hint="return a dict or tuple as torch.export takes it for dynamic_shapes",
    )


def _entry_points(path: Path, signatures: object) -> dict[str, EntryPoint]:
    """Read get_signatures()."""
    form = "return {name: (model or method, args, kwargs, dynamic_shapes)}"
    if not isinstance(signatures, Mapping) or not signatures:
        raise FactoryError(
            f"get_signatures() in {path.name} returns no dict of signatures", hint=form
        )
    points = {}
    for name, value in signatures.items():
        if not isinstance(value, tuple | list) or not 2 <= len(value) <= 4:
            raise FactoryError(f"signature {name!r} is no tuple of 2 to 4", hint=form)
        model, inputs, kwargs, shapes = (*value, None, None)[:4]
        args, more = as_example(f"signature {name!r}", inputs)
        points[str(name)] = EntryPoint(
            _model(path, model), args, {**more, **(kwargs or {})}, shapes
        )
    return points

"""What is exported: a module and the function of it that a call runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any, TypeAlias, get_type_hints

import torch
from torch.export import register_dataclass
from torch.nn.parameter import is_lazy
from torch.utils._pytree import SUPPORTED_NODES

from tpu_export.exporter.refusals import SCRIPT
from tpu_export.runtime.errors import TpuExportError, with_article

_LATER = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
_SCRIPTS = (torch.jit.ScriptModule, torch.jit.ScriptFunction)
Callee: TypeAlias = torch.nn.Module | Callable[..., object]


class InputMismatchError(TpuExportError):
    """The inputs do not fit forward()'s parameters."""

    code = "TPX-0101"


class NotAModelError(TpuExportError):
    """What should be captured is no module, function or exported program."""

    code = "TPX-0102"


@contextmanager
def exportable(model: Callee) -> Iterator[torch.nn.Module]:
    """Give a module whose forward() is what should be captured.

    A bound method stands in for its module's forward() inside the block, so that
    weights keep the names they have in the module. A plain function gets a module
    around it; modules it closes over become submodules.
    """
    if isinstance(model, torch.nn.Module):
        yield model
        return
    owner = getattr(model, "__self__", None)
    if not isinstance(owner, torch.nn.Module):
        yield _around(_function(model))
        return
    before = owner.__dict__.get("forward")
    owner.__dict__["forward"] = model
    try:
        yield owner
    finally:
        del owner.__dict__["forward"]
        if before is not None:
            owner.__dict__["forward"] = before


def _around(function: Callable[..., object]) -> torch.nn.Module:
    module = torch.nn.Module()
    for name, value in _closure(function).items():
        if isinstance(value, torch.nn.Module):
            module.add_module(name, value)
    module.__dict__["forward"] = function
    return module.train(any(m.training for m in module.children()))


def _closure(function: Callable[..., object]) -> Mapping[str, object]:
    if not inspect.isfunction(function):
        return {}
    variables = inspect.getclosurevars(function)
    return {**variables.globals, **variables.nonlocals}


def _function(model: Callee) -> Callable[..., object]:
    """Return the Python function that a call runs.

    Raises:
        NotAModelError: there is none that torch could trace.
    """
    if isinstance(model, type):
        raise NotAModelError(
            f"the class {model.__qualname__} cannot be captured",
            hint="pass an instance of it: the model itself",
        )
    if not callable(model):
        message = f"{with_article(type(model).__name__)} cannot be captured"
        hint = "pass an nn.Module, a function, an ExportedProgram or the path of a .pt2"
        raise NotAModelError(message, hint=hint)
    parts = model.modules() if isinstance(model, torch.nn.Module) else (model,)
    if any(isinstance(part, _SCRIPTS) for part in parts):
        raise NotAModelError(
            f"{_name(model)} cannot be captured: it is TorchScript, or has a part that is",
            hint=SCRIPT,
        )
    function: Any = model.forward if isinstance(model, torch.nn.Module) else model
    called: Callable[..., object]
    for called in (function, function.__call__):
        if hasattr(_innermost(called), "__code__"):
            _check_function(model, _innermost(called))
            return called
    hint = "torch.export traces Python code: write a function that calls it"
    kind = "a functools.partial of " if isinstance(model, partial) else ""
    raise NotAModelError(
        f"{kind}{_name(model)} cannot be captured: it is no Python function",
        hint=hint,
    )


def _check_function(model: Callee, function: Callable[..., object]) -> None:
    """Refuse what a call does not run, or not with all weights."""
    if function.__code__.co_flags & _LATER:
        raise NotAModelError(
            f"{_name(model)} cannot be captured: it is a coroutine or generator",
            hint="return the tensors: no `async def`, no `yield`",
        )
    parts = model.named_parameters() if isinstance(model, torch.nn.Module) else ()
    lazy = [name for name, weight in parts if is_lazy(weight)]
    if lazy:
        raise NotAModelError(
            f"the model has weights that are not initialized yet: {', '.join(lazy)}",
            hint="call it once before: a Lazy module has its sizes from its first inputs",
        )


def _innermost(function: Callable[..., object]) -> Callable[..., object]:
    """Return what a partial, or a decorated or compiled function, calls in the end."""
    if isinstance(function, partial):
        function = function.func
    inner: Callable[..., object] = inspect.unwrap(function)
    return inner


def code(model: Callee) -> CodeType:
    """Return the Python code of the function that a call runs."""
    found: CodeType = _innermost(_function(model)).__code__
    return found


def source_file(model: Callee) -> Path | None:
    """Return the file that defines the model, if there is one."""
    definition = _innermost(model)
    owner = getattr(definition, "__self__", definition)
    if not inspect.isroutine(definition) or isinstance(owner, torch.nn.Module):
        definition = type(owner)
    try:
        found = inspect.getsourcefile(definition)
    except TypeError:
        return None
    return Path(found).resolve() if found and Path(found).exists() else None


def bind(
    model: Callee, args: Sequence[object], kwargs: Mapping[str, object]
) -> inspect.BoundArguments:
    """Match the inputs with forward()'s parameters.

    Raises:
        InputMismatchError: names the parameter that is missing or unknown.
        NotAModelError: the model is nothing that can be called.
    """
    signature = inspect.signature(_function(model))
    try:
        return signature.bind(*args, **kwargs)
    except TypeError as error:
        raise InputMismatchError(
            f"the inputs do not fit {_name(model)}{signature}: {error}",
            hint=f"given: {len(args)} positional, keywords {sorted(kwargs)}; "
            "args is a tuple, kwargs a dict",
        ) from error


def _name(model: Callee) -> str:
    if isinstance(model, torch.nn.Module):
        return f"{type(model).__name__}.forward"
    inner = _innermost(model)
    return getattr(inner, "__name__", type(inner).__name__)


def register_dataclasses(value: object) -> None:
    """Make every dataclass in nested inputs or outputs known to torch's pytrees."""
    if is_dataclass(value) and not isinstance(value, type):
        _register(type(value))
    for child in _children(value):
        register_dataclasses(child)


def register_annotated(model: Callee) -> None:
    """Register the dataclass that forward() says it returns."""
    try:
        returned = get_type_hints(_function(model)).get("return")
    except (
        NameError,
        TypeError,
        AttributeError,
    ):  # names that only a type checker sees
        return
    if isinstance(returned, type) and is_dataclass(returned):
        _register(returned)


def _register(kind: type) -> None:
    if kind not in SUPPORTED_NODES:
        name = f"{kind.__module__}.{kind.__qualname__}"
        register_dataclass(kind, serialized_type_name=name)


def _children(value: object) -> Sequence[object]:
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, list | tuple):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, name) for name in value.__dataclass_fields__]
    return ()

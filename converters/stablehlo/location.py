"""Where a node comes from: module path, ATen op, the user's file and line."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from types import BuiltinFunctionType, FunctionType

import torch

from tpu_export.converters.stablehlo.mutating import called_op

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_LIBRARY = (
    "/site-packages/",
    "/dist-packages/",
    "/torch/nn/",
    "/torch/_",
    "<eval_with_key>",
)


def module_path(node: torch.fx.Node) -> str:
    """Return the dotted path of the innermost module, "" for the root."""
    stack = node.meta.get("nn_module_stack") or {}
    path = next(reversed(stack.values()))[0] if stack else ""
    return re.sub(r"^L\['self'\]\.?|^L__self__\.?", "", str(path)).split("@")[0]


def source_line(node: torch.fx.Node, model_file: Path | None = None) -> str:
    """Return "model.py:31": the innermost frame of the user's own code, "?:0" if unknown.

    The path is relative to the model file's folder when it lies there, else a base name, so
    that no path of the build host gets into an artifact.
    """
    return _line(node.meta.get("stack_trace") or "", model_file)


@lru_cache(maxsize=4096)
def _line(stack_trace: str, model_file: Path | None) -> str:
    frames = _FRAME.findall(stack_trace)
    own = [f for f in frames if not any(part in f[0] for part in _LIBRARY)]
    if not own and not frames:
        return "?:0"
    file, line = (own or frames)[-1]
    return f"{_shown(file, model_file)}:{line}"


@lru_cache(maxsize=256)
def _shown(file: str, model_file: Path | None) -> str:
    path = Path(file)
    if model_file is not None and path.is_relative_to(model_file.parent):
        return path.relative_to(model_file.parent).as_posix()
    return path.name


def scope(node: torch.fx.Node, model_file: Path | None = None) -> str:
    """Return the scope that every StableHLO op of the node carries."""
    target = called_op(node)
    if isinstance(target, FunctionType | BuiltinFunctionType):
        target = target.__name__  # str() of it has an address
    return f"{module_path(node)}/{target}/{source_line(node, model_file)}"


def spoken(scope: str, said: str = "") -> str:
    """Return the place of a scope for a message, without the op if the message has it.

    >>> spoken("net.fc/aten.linear.default/model.py:31")
    'aten.linear.default in net.fc (model.py:31)'
    >>> spoken("/aten.sort.stable/model.py:7", "no rule for aten.sort.stable")
    'the root (model.py:7)'
    """
    module, op, line = scope.split("/", 2)
    where = f"{module or 'the root'} ({line})"
    return where if op in said else f"{op} in {where}"

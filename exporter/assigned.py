"""Tensors that forward() assigns to plain attributes: state that nothing declares.

torch.export restores the attributes and says no more, so the graph would compute the first
call each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from tpu_export.exporter.refusals import NotExportableError
from tpu_export.exporter.restored import restored

# The path of the module that has the attribute, the attribute, and the key where it is a list
# or dict. By path: torch hands out proxies of modules, another one of a shared one each time.
Place: TypeAlias = tuple[str, str, object]
_OWN = frozenset(vars(nn.Module()))  # _parameters, _buffers, …


@dataclass
class Assigned:
    """What forward() put in the place of tensors while it was traced.

    Attributes:
        before: tensors in attributes, and in lists and dicts in attributes.
        places: those of them that are another tensor afterwards.
    """

    before: Mapping[Place, Tensor]
    places: list[Place] = field(default_factory=list)

    def lost(self, program: ExportedProgram) -> list[Place]:
        """Return the places whose old tensors the graph computes with."""
        read = {id(value) for value in program.constants.values()}
        return [place for place in self.places if id(self.before[place]) in read]


@contextmanager
def watched(module: nn.Module) -> Iterator[Assigned]:
    """Watch the attributes of a module and its submodules during a call."""
    found = Assigned(dict(_tensors(module)))

    def hook(root: nn.Module, _: object, __: object) -> None:
        now = dict(_tensors(root))
        found.places = [p for p, old in found.before.items() if now.get(p) is not old]

    handle = module.register_forward_hook(hook)
    try:
        yield found
    finally:
        handle.remove()


@contextmanager
def written_buffers(module: nn.Module) -> Iterator[None]:
    """Write what forward() assigns to buffers of submodules to the buffers themselves.

    torch.export keeps such assignments for the root alone, and loses the others.
    """
    before: dict[str, Tensor | None] = {}

    def enter(root: nn.Module, _: object) -> None:
        before.update((path, held[name]) for path, name, held in _inner_buffers(root))

    def leave(root: nn.Module, _: object, __: object) -> None:
        assigned = [
            (path, name, held, value.clone())
            for path, name, held in _inner_buffers(root)
            if (value := held[name]) is not before.get(path) and value is not None
        ]
        for path, name, held, value in assigned:
            old = before.get(path)
            if old is None or (old.shape, old.dtype) != (value.shape, value.dtype):
                raise NotExportableError(
                    f"forward() gives the buffer {path} another shape or dtype",
                    hint="keep a buffer of one size, and write to a part of it",
                )
            old.copy_(value)
            held[name] = old

    handles = (
        module.register_forward_pre_hook(enter),
        module.register_forward_hook(leave),
    )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def refuse_lost(
    module: nn.Module,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    program: ExportedProgram,
) -> None:
    """Refuse a program of strict mode, which loses what forward() assigns.

    Raises:
        NotExportableError: the model, called once, gives an attribute that the graph reads
            another tensor.
    """
    buffers = {
        f"{path}.{name}".lstrip("."): (owner, name)
        for path, owner in module.named_modules()
        for name in owner._buffers
    }
    before = {path: owner._buffers[name] for path, (owner, name) in buffers.items()}
    plain = Assigned(dict(_tensors(module)))
    state = {f"buffer {path}": b for path, b in before.items() if b is not None}
    state |= {f"{place}": tensor for place, tensor in plain.before.items()}
    given, named = pytree.tree_map_only(Tensor, Tensor.clone, (args, dict(kwargs)))
    with restored(module, state), torch.no_grad():
        module(*given, **named)
        now = dict(_tensors(module))
        plain.places = [p for p, old in plain.before.items() if now.get(p) is not old]
        lost = [
            path
            for path, (owner, name) in buffers.items()
            if owner._buffers.get(name) is not before[path]
        ]
    known = set(program.graph_signature.buffers_to_mutate.values())
    lost = [path for path in lost if path not in known]
    lost += [".".join(filter(None, place[:2])) for place in plain.lost(program)]
    if lost:
        raise NotExportableError(
            f"strict=True loses what forward() assigns to self.{lost[0]}",
            hint="leave strict=True out, or write to the tensor in place (copy_())",
        )


def _inner_buffers(
    root: nn.Module,
) -> Iterator[tuple[str, str, dict[str, Tensor | None]]]:
    """Return the path, the name and the holder of each buffer of a submodule."""
    for path, owner in root.named_modules():
        for name in list(owner._buffers) if path else ():
            yield f"{path}.{name}", name, owner._buffers


@contextmanager
def as_buffers(module: nn.Module, places: list[Place]) -> Iterator[None]:
    """Make such attributes buffers inside the block: what is assigned to a buffer is state.

    Raises:
        NotExportableError: one is in a list or dict, which cannot hold a buffer.
    """
    for path, name, key in places:
        if key is not None:
            said = ".".join(filter(None, ("self", path, name)))
            raise NotExportableError(
                f"forward() replaces the tensor {said}[{key!r}], which the next call reads",
                hint="register it with register_buffer() and assign or write to that: "
                "a tensor in a list or dict is a constant of the graph",
            )
    found = dict.fromkeys(
        (module.get_submodule(path), name) for path, name, _ in places
    )
    kept = [(owner, name, owner.__dict__.pop(name)) for owner, name in found]
    for owner, name, tensor in kept:
        owner.register_buffer(name, tensor, persistent=False)
    try:
        yield
    finally:
        for owner, name, tensor in kept:
            delattr(owner, name)
            owner.__dict__[name] = tensor


def _tensors(module: nn.Module) -> Iterator[tuple[Place, Tensor]]:
    for path, owner in module.named_modules(remove_duplicate=False):
        for name, value in vars(owner).items():
            if name in _OWN:
                continue
            if isinstance(value, Tensor):
                yield (path, name, None), value
            elif isinstance(value, list | dict):
                items = enumerate(value) if isinstance(value, list) else value.items()
                for key, item in items:
                    if isinstance(item, Tensor):
                        yield (path, name, key), item

"""Modules around the samples of torch's op_db and module_db."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch.utils import _pytree as pytree

DTYPES = {
    str(d).removeprefix("torch."): d
    for d in (
        torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64,
        torch.int32, torch.uint8, torch.bool, torch.complex64,
    )
}  # fmt: skip
# Their results are memory as it was found: only shape and dtype can be compared.
UNINITIALIZED = frozenset(
    {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty",
     "new_empty_strided"}
)  # fmt: skip
RESULTS = (torch.Tensor, torch.SymFloat, float, complex)  # sizes are constants


class Op(torch.nn.Module):
    """An op on one sample: its tensors are inputs, everything else is fixed."""

    def __init__(self, op: Callable[..., Any], sample: Any, uninitialized: bool):
        super().__init__()
        arguments = ((sample.input, *sample.args), dict(sample.kwargs))
        leaves, self.spec = pytree.tree_flatten(arguments)
        self.op = op
        self.leaves = [None if isinstance(x, torch.Tensor) else x for x in leaves]
        self.tensors = tuple(x.detach() for x in leaves if isinstance(x, torch.Tensor))
        self.places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
        self.uninitialized = uninitialized

    def forward(self, *tensors: torch.Tensor) -> Any:
        leaves = list(self.leaves)
        for place, tensor in zip(self.places, tensors, strict=True):
            leaves[place] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        result = self.op(*args, **kwargs)
        if self.uninitialized:
            result = pytree.tree_map_only(torch.Tensor, torch.zeros_like, result)
        leaves = pytree.tree_leaves(result)
        return tuple(x for x in leaves if isinstance(x, RESULTS))


def _unseeded(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return op(*args, **kwargs)


@cache
def op_table() -> dict[str, Any]:
    """Return op_db by name; a variant is "name:variant"."""
    from torch.testing._internal.common_methods_invocations import op_db

    for module in list(sys.modules.values()):
        # Entries of random ops fix the seed inside; a graph holds no such call.
        if getattr(module, "wrapper_set_seed", None) and "testing" in module.__name__:
            module.wrapper_set_seed = _unseeded  # type: ignore[attr-defined]
    return {
        info.name
        + (f":{info.variant_test_name}" if info.variant_test_name else ""): info
        for info in op_db
        if info.name != "broadcast_shapes"  # it gives sizes, and no tensor
    }


def op_samples(name: str, dtype: torch.dtype) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Yield (module, args) per sample input of an entry of op_db."""
    info = op_table()[name]
    torch.manual_seed(0)
    for sample in info.sample_inputs("cpu", dtype, requires_grad=False):
        module = Op(info.op, sample, info.name in UNINITIALIZED).eval()
        yield module, module.tensors


@cache
def module_table() -> dict[str, Any]:
    """Return module_db by name."""
    from torch.testing._internal.common_modules import module_db

    return {info.name: info for info in module_db}


def module_samples(
    name: str, dtype: torch.dtype
) -> Iterator[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """Yield (module, args, kwargs) per module input, in eval mode."""
    info = module_table()[name]
    torch.manual_seed(0)
    inputs = info.module_inputs_func(
        info, device="cpu", dtype=dtype, requires_grad=False, training=False
    )
    for sample in inputs:
        given = sample.constructor_input
        module = info.module_cls(*given.args, **given.kwargs).to(dtype).eval()
        call = sample.forward_input
        if call is not None:
            yield module, tuple(call.args), dict(call.kwargs)


def _svd(outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    u, s, vh, matrix = outputs
    k = s.shape[-1]
    back = (u[..., :k] * s.unsqueeze(-2).to(u.dtype)) @ vh[..., :k, :]
    return [s, back - matrix, (u.mH @ u).abs(), (vh @ vh.mH).abs()]


def _old_svd(outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    u, s, v, matrix = outputs
    return _svd([u, s, v.mH, matrix])


def _eigh(outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    values, vectors, _ = outputs
    return [values, (vectors * values.unsqueeze(-2).to(vectors.dtype)) @ vectors.mH]


def _selected(outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Of equal values any place is right: compare values, if they stand at the places."""
    values, places, x, *_ = outputs
    for dim in range(x.dim()):
        reduced = places.dim() < x.dim()
        at, wanted = (t.unsqueeze(dim) if reduced else t for t in (places, values))
        fits = all(
            at.shape[d] <= x.shape[d] for d in range(x.dim()) if d != dim
        ) and bool((at < x.shape[dim]).all())
        if fits and _same(torch.gather(x, dim, at), wanted):
            return [values]
    return [values, places]


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and bool(((a == b) | (a != a) & (b != b)).all())


def _ordered(outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Of equal values any order is right unless it must be stable: compare the values."""
    places, x, *_ = outputs
    orders = (torch.sort(x, dim, d)[0] for dim in range(x.dim()) for d in (False, True))
    for dim, values in zip((d // 2 for d in range(2 * x.dim())), orders, strict=True):
        if torch.equal(torch.gather(x, dim, places), values):
            return [values]
    return [places]


# Entries whose results are right in several ways -> what of them is unique.
CANONICAL: dict[str, Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]] = {
    "kthvalue": _selected,
    "mode": _selected,  # torch sorts more than 16 elements in no stable way
    "sort": _selected,
    "argsort": _ordered,
    "topk": _selected,
    "linalg.svd": _svd,
    "svd": _old_svd,
    "linalg.eigh": _eigh,
}

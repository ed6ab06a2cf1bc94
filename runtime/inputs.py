"""A call's arguments as flat arrays, checked against the signature: every problem at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpu_export.runtime.errors import TpuExportError, with_article
from tpu_export.runtime.limits import outside_indices, solved_sizes
from tpu_export.runtime.signature import Parameter, Signature, TensorSpec
from tpu_export.runtime.tensors import Array, numpy_dtype
from tpu_export.runtime.trees import StructureError, flatten

# Kinds of dtype that a Python number may become; V are ml_dtypes' floats.
_KINDS = {bool: "b", int: "iu", float: "fV", complex: "c"}
_NOT_ARRAYS = (list, tuple, dict, str, bytes, type(None))


class InputError(TpuExportError):
    """The arguments do not fit the signature: name, structure, shape or dtype."""

    code = "TPX-0505"


class IndexRangeError(InputError):
    """An input holds an index that the model refuses: no such row of a table."""

    code = "TPX-0510"


@dataclass(frozen=True)
class BoundCall:
    """Checked inputs of one call.

    Attributes:
        arrays: in the order of signature.inputs.
        dims: the size of each dynamic dimension.
        given: the caller's own objects, in the same order.
    """

    arrays: tuple[Array, ...]
    dims: Mapping[str, int]
    given: tuple[Any, ...]


def bind_call(
    signature: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> BoundCall:
    """Match arguments with a signature.

    Raises:
        InputError: says all that is wrong, and what the signature wants.
        IndexRangeError: all fits but the values of indices.
    """
    problems: list[str] = []
    given: dict[int, Any] = {}

    def put(index: int, _: str, leaf: Any) -> None:
        given[index] = leaf

    for parameter, value in _assigned(signature.parameters, args, kwargs, problems):
        try:
            flatten(parameter.tree, value, parameter.name, put)
        except StructureError as error:
            problems.append(str(error))
    arrays: dict[str, Array] = {}
    for index, spec in enumerate(signature.inputs):
        if index in given:
            array = _array(spec, given[index], problems)
            if array is not None:
                arrays[spec.name] = array
    dims, wrong = solved_sizes(signature, arrays)
    problems += wrong
    if problems:
        raise InputError(
            f"{signature.name}: {'; '.join(problems)}",
            hint=f"the signature is {describe(signature)}",
        )
    outside = outside_indices(signature, arrays)
    if outside:
        raise IndexRangeError(
            f"{signature.name}: {'; '.join(outside)}",
            hint="torch raises IndexError here: look at what makes these indices",
        )
    names = [spec.name for spec in signature.inputs]
    order = tuple(given[i] for i in range(len(names)))
    return BoundCall(tuple(arrays[name] for name in names), dims, order)


def describe(signature: Signature) -> str:
    """Return a signature as text: "forward(x: float32[batch, 16])"."""
    inputs = ", ".join(f"{s.name}: {describe_tensor(s)}" for s in signature.inputs)
    return f"{signature.name}({inputs})"


def describe_tensor(spec: TensorSpec) -> str:
    """Return "float32[batch, 16]"."""
    return f"{spec.dtype}[{', '.join(map(str, spec.shape))}]"


def _assigned(
    parameters: Sequence[Parameter],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    problems: list[str],
) -> list[tuple[Parameter, Any]]:
    """Return each parameter with its argument; constants may be left out."""
    values: dict[str, Any] = dict(zip((p.name for p in parameters), args, strict=False))
    if len(args) > len(parameters):
        problems.append(f"{len(args)} arguments given, {len(parameters)} expected")
    names = {p.name for p in parameters}
    problems += [f"unknown argument {name!r}" for name in kwargs if name not in names]
    problems += [f"argument {name!r} given twice" for name in kwargs if name in values]
    values |= {name: value for name, value in kwargs.items() if name in names}
    problems += [
        f"missing argument {p.name!r}"
        for p in parameters
        if p.name not in values and "const" not in p.tree
    ]
    return [(p, values[p.name]) for p in parameters if p.name in values]


def _array(spec: TensorSpec, value: Any, problems: list[str]) -> Array | None:
    dtype = numpy_dtype(spec.dtype)
    kind = _KINDS.get(type(value))
    if isinstance(value, _NOT_ARRAYS):
        problems.append(
            f"{spec.name} is {with_article(type(value).__name__)}, expected an array "
            f"{describe_tensor(spec)}"
        )
        return None
    try:
        if kind is not None and not spec.shape and dtype.kind in kind:
            return np.asarray(value, dtype)
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        problems.append(f"{spec.name} cannot become {describe_tensor(spec)}: {reason}")
        return None
    if array.dtype != dtype:
        problems.append(f"{spec.name} has dtype {array.dtype}, expected {spec.dtype}")
    elif array.ndim != len(spec.shape):
        problems.append(
            f"{spec.name} has shape {list(array.shape)}, expected {describe_tensor(spec)}"
        )
    else:
        return array
    return None

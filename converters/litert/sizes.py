"""A .tflite has a signature for each set of sizes: how they are named, and found by shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from tpu_export.converters.litert.errors import LiteRtInputError
from tpu_export.converters.litert.exchange import Array
from tpu_export.runtime.limits import outside_indices, solved_sizes
from tpu_export.runtime.signature import Signature, TensorSpec, sizes_text
from tpu_export.runtime.stablehlo import static_shape

Sizes: TypeAlias = Mapping[str, int]
_DEFAULT = "forward"


def sized_name(name: str, sizes: Sizes) -> str:
    """Return the name of a signature at some sizes: "forward_batch8_seq64"."""
    return name + _suffix(sizes)


def family(name: str, sizes: Sizes) -> str:
    """Return the model's name of a signature: what `sized_name` was given."""
    return name.removesuffix(_suffix(sizes))


def _suffix(sizes: Sizes) -> str:
    return "".join(f"_{dim}{size}" for dim, size in sizes.items())


def at_sizes(signature: Signature, sizes: Sizes) -> Signature:
    """Return a signature whose dynamic dimensions have these sizes."""

    def fixed(specs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
        return tuple(replace(s, shape=static_shape(s.shape, sizes)) for s in specs)

    if not set(sizes) >= {dim.name for dim in signature.dims}:
        return signature
    return replace(
        signature,
        inputs=fixed(signature.inputs),
        outputs=fixed(signature.outputs),
        dims=(),
        constraints=(),
    )


def chosen(
    signatures: Mapping[str, Signature],
    sizes: Mapping[str, Sizes],
    wanted: str | None,
    arrays: Mapping[str, Array],
) -> str:
    """Return the signature of a file that a call is for.

    Args:
        signatures: of the file, by name.
        sizes: of dynamic dimensions, by signature.
        wanted: a name in the file or in the model; by default the only one of the model, or
            "forward".
        arrays: inputs; their shapes decide among the sizes.

    Raises:
        LiteRtInputError: there is none of that name, or of that shape.
    """
    families = {name: family(name, sizes.get(name, {})) for name in signatures}
    if wanted is None:
        own = set(families.values())
        wanted = _DEFAULT if len(own) > 1 else own.pop()
    members = [name for name, model in families.items() if model == wanted]
    if wanted in signatures:
        return wanted
    if not members:
        raise LiteRtInputError(
            f"no signature {wanted!r}", hint=f"there are {', '.join(signatures)}"
        )
    for name in members:
        if not misshapen(signatures[name], arrays):
            return name
    given = ", ".join(f"{key} {list(array.shape)}" for key, array in arrays.items())
    known = "; ".join(f"{sizes_text(sizes.get(name, {}))}" for name in members)
    raise LiteRtInputError(
        f"no signature of {wanted!r} is for {given}",
        hint=f"its sizes are {known}: pad to one of them, or export with --bucket",
    )


def misshapen(signature: Signature, arrays: Mapping[str, Array]) -> list[str]:
    """Return what is wrong with the shapes of inputs and state."""
    specs = {
        **{f"state.{slot.name}": slot.shape for slot in signature.state},
        **{spec.name: spec.shape for spec in signature.inputs},
    }
    return [
        f"{key} has shape {list(array.shape)}, expected {list(specs[key])}"
        for key, array in arrays.items()
        if key in specs and not fits(array.shape, specs[key])
    ]


def unfit(signature: Signature, arrays: Mapping[str, Array]) -> list[str]:
    """Return what is wrong with shapes, sizes of dimensions, and values of indices."""
    wrong = misshapen(signature, arrays) or solved_sizes(signature, arrays)[1]
    return wrong or outside_indices(signature, arrays)


def fits(shape: tuple[int, ...], wanted: tuple[int | str, ...]) -> bool:
    """Tell whether a shape is the wanted one; a dimension without a size may have any."""
    return len(shape) == len(wanted) and all(
        isinstance(size, str) or size == given
        for given, size in zip(shape, wanted, strict=True)
    )

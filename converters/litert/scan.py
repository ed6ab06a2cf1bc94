"""What the installed converter is known to get wrong, found before it is asked.

Each entry was seen on litert-converter 0.5 with ai-edge-litert 2.3; tests/converters/litert
runs them against the installed one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

_PLACE = re.compile(r'"[^"]*?([^/"]*/[\w.]+/[^/"]*:\d+)')

REFUSED = {
    "stablehlo.sort": "becomes an op that the runtime cannot load",
    "chlo.top_k": "becomes an op that the runtime cannot load",
    "stablehlo.scatter": "becomes an op that the runtime cannot load",
    "stablehlo.while": "fails in the flatbuffer export",
    "stablehlo.custom_call": "has no LiteRT form",
    "stablehlo.fft": "has no LiteRT form",
    "stablehlo.cholesky": "has no LiteRT form",
    "stablehlo.triangular_solve": "has no LiteRT form",
    "stablehlo.complex": "has no LiteRT form",
    "stablehlo.rng_bit_generator": "has no LiteRT form",
}


def refused(module: Any) -> list[str]:
    """Return a line for every op of an MLIR module that must not reach the converter."""
    problems: dict[str, None] = {}
    operations = list(_operations(module.operation))
    calls = [op for op in operations if op.name == "func.call"]
    for operation in operations:
        name = operation.name
        reason = REFUSED.get(name) or _CHECKS.get(name, lambda _: None)(operation)
        if reason:
            problems |= {
                f"{name} at {p}: {reason}": None for p in _places(operation, calls)
            }
    return list(problems)


def _operations(operation: Any) -> Iterator[Any]:
    yield operation
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield from _operations(inner.operation)


def _places(operation: Any, calls: Sequence[Any]) -> list[str]:
    """Return each "module.path/aten.op/model.py:31" that an op comes from.

    What JAX shares between calls, such as its random bits, has the places of its callers.
    """
    found = _PLACE.search(str(operation.location))
    if found:
        return [found.group(1).removeprefix("jit(main)")]
    function = operation
    while function.name != "func.func":
        if function.parent is None:
            return ["an unknown place"]
        function = function.parent
    name = str(function.attributes["sym_name"]).strip('"')
    callers = [c for c in calls if str(c.attributes["callee"]) == f"@{name}"]
    return [p for c in callers for p in _places(c, calls)] or ["an unknown place"]


def _dilated(operation: Any) -> str | None:
    """Transposed convolutions with asymmetric padding come out wrong."""
    if "lhs_dilation" not in operation.attributes:
        return None
    values = list(operation.attributes["lhs_dilation"])
    return "a dilated input comes out wrong" if any(v != 1 for v in values) else None


def _padded_partly(operation: Any) -> str | None:
    """Take padding that is SAME on the padded axes: the converter pads the others too."""
    body = operation.regions[0].blocks[0].operations
    if not any(op.name == "stablehlo.maximum" for op in body):
        return None
    if "padding" not in operation.attributes:
        return None
    listed = list(operation.attributes["padding"])
    pads = list(zip(listed[::2], listed[1::2], strict=True))
    pairs = list(zip(pads, _same_padding(operation), strict=True))
    padded = [pad == same for pad, same in pairs if any(pad)]
    if padded and all(padded) and any(pad != same for pad, same in pairs):
        return "a maximum over windows padded on some axes only comes out wrong"
    return None


def _same_padding(operation: Any) -> list[tuple[int, int]]:
    """Return the padding with which every stride begins a window, on each axis."""
    sizes = operation.operands[0].type.shape

    def given(name: str) -> list[int]:
        found = name in operation.attributes
        return list(operation.attributes[name]) if found else [1] * len(sizes)

    result = []
    for size, window, stride, dilation in zip(
        sizes,
        given("window_dimensions"),
        given("window_strides"),
        given("window_dilations"),
        strict=True,
    ):
        steps = -(-size // stride) - 1
        total = max(steps * stride + dilation * (window - 1) + 1 - size, 0)
        result.append((total // 2, total - total // 2))
    return result


_CHECKS: dict[str, Callable[[Any], str | None]] = {
    "stablehlo.convolution": _dilated,
    "stablehlo.reduce_window": _padded_partly,
}

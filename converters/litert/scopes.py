"""Which module, op and line of the model a tensor of a .tflite belongs to.

The scopes of lowering survive in tensor names: "jit(main)/MODULE/OP/FILE:LINE/PRIMITIVE", several
of them joined by ";" where the converter fused ops. The product or convolution says what such an
op computes, else the first one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_SCOPE = re.compile(
    r"^jit\(main\)/(?P<module>[^/;]*)/(?P<op>[^/;]+)/(?P<line>[^;]+?:\d+)"
    r"(?:/(?P<primitive>[a-z_]+))?"
)
_HEAVY = ("dot_general", "conv_general_dilated")


@dataclass(frozen=True)
class Place:
    """Where in the model an op comes from.

    Attributes:
        module: dotted path, "" for the root.
        op: as torch calls it; line: "model.py:31".
    """

    module: str
    op: str
    line: str

    def __str__(self) -> str:
        """Return the place for people."""
        return f"{self.op} in {self.module or 'the root'} ({self.line})"


UNKNOWN = Place("", "?", "?:0")


def place_of(name: str) -> Place | None:
    """Return the place that a tensor's name tells, None when it tells none.

    >>> print(place_of("jit(main)/net.fc/aten.linear.default/a/model.py:31/dot_general;x"))
    aten.linear.default in net.fc (a/model.py:31)
    >>> print(place_of("jit(main)/0/add/m.py:3/add;jit(main)/1/linear/m.py:4/dot_general"))
    linear in 1 (m.py:4)
    >>> place_of("arith.constant11")
    """
    parts = [found for part in name.split(";") if (found := _SCOPE.match(part))]
    heavy = [found for found in parts if found["primitive"] in _HEAVY]
    return next((Place(*m.group("module", "op", "line")) for m in heavy or parts), None)


def first_place(names: Iterable[str]) -> Place:
    """Return the place that the first telling name has."""
    return next((p for p in map(place_of, names) if p), UNKNOWN)

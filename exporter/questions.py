"""What a model asks of its sizes while torch traces it, as in `if x.shape[0] == 1`.

torch takes every dynamic size for 2 or more, answers from that, and keeps no guard.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import sympy
import torch
from torch._guards import TracingContext
from torch.fx.experimental import sym_node, symbolic_shapes
from torch.fx.experimental.sym_node import SymNode

_TORCH = str(Path(torch.__file__).parent)
_LAYERS = str(Path(torch.nn.__file__).parent)  # which ask as a model does
_DYNAMO = str(Path(_TORCH) / "_dynamo")
_BETWEEN = {torch.__file__, sym_node.__file__, symbolic_shapes.__file__}


@dataclass(frozen=True)
class Question:
    """A relation between sizes, and what torch took for its truth.

    Attributes:
        relation: in torch's symbols.
        answer: while it traced.
        place: "model.py:12".
    """

    relation: sympy.Basic
    answer: bool
    place: str

    def differs(self, sizes: Mapping[str, int]) -> bool:
        """Whether the answer is another one at these sizes, by symbol."""
        symbols = {
            s: sizes[str(s)] for s in self.relation.free_symbols if str(s) in sizes
        }
        truth = self.relation.subs(symbols)
        return truth in (sympy.true, sympy.false) and bool(truth) != self.answer


@contextmanager
def questions() -> Iterator[list[Question]]:
    """Give the list of what models ask inside the block."""
    found: list[Question] = []
    kind: Any = SymNode
    original = kind.guard_bool

    def guard_bool(self: SymNode, file: str, line: int) -> bool:
        truth: bool = original(self, file, line)
        relation, place = self._expr, _place(sys._getframe(1))
        if place and isinstance(relation, sympy.Basic):
            found.append(Question(relation, truth, place))
        return truth

    kind.guard_bool = guard_bool
    try:
        yield found
    finally:
        kind.guard_bool = original


def _place(frame: FrameType | None) -> str | None:
    """Return the model's line that asks; None where torch asks for itself."""
    while frame and frame.f_code.co_filename in _BETWEEN:
        frame = frame.f_back
    if frame is None:
        return None
    file, line = frame.f_code.co_filename, frame.f_lineno
    if file.startswith(_DYNAMO):  # which interprets the model's bytecode
        stack = TracingContext.extract_stack()
        file, line = (stack[-1].filename, stack[-1].lineno or 0) if stack else ("", 0)
    if not file or (file.startswith(_TORCH) and not file.startswith(_LAYERS)):
        return None
    return f"{Path(file).name}:{line}"

"""Signatures that the format cannot hold are refused at capture, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tpu_export.exporter.capture import capture
from tpu_export.exporter.signature import UnsupportedValueError

X = torch.ones(2)


def nested(value: object, levels: int) -> Any:
    for _ in range(levels):
        value = {"k": value}
    return value


def inner(x: Any) -> torch.Tensor:
    while isinstance(x, dict):
        x = x["k"]
    return x + 1


CASES = {
    "deep input": (inner, nested(X, 64), "the parameter 'x' is nested 65 deep"),
    "deep result": (lambda x: nested(x + 1, 64), X, "the result is nested 65 deep"),
    "empty key": (lambda x: {"": x + 1}, X, "bad name, dtype or rank of ''"),
    "line break": (lambda x: {"a\nb": x + 1}, X, r"of 'a\\nb'"),
    "a truth as key": (lambda x: {True: x + 1}, X, "not a pair of key and tree"),
    "empty result": (lambda x: {}, X, "returns no tensor"),
    "constant result": (lambda x: 3, X, "returns no tensor"),
}


@pytest.mark.parametrize("name", CASES)
def test_refused(name: str) -> None:
    function, x, words = CASES[name]
    call: Callable[..., object] = function
    with pytest.raises(UnsupportedValueError, match=words) as info:
        capture(call, (x,))
    assert info.value.code == "TPX-0105"


def test_the_deepest_that_is_allowed() -> None:
    assert capture(inner, (nested(X, 63),)).signature.inputs


class Counts(torch.nn.Module):
    """Returns nothing, and writes to a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("n", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> None:
        self.n += x.sum()


def test_a_model_that_only_writes_is_no_empty_one() -> None:
    assert capture(Counts(), (X,)).signature.outputs == ()

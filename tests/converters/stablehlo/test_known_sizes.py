"""Sizes that stored tensors decide are numbers; what a call writes to decides none."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from tpu_export.exporter.capture import capture
from tpu_export.runtime.errors import TpuExportError


class Masked(nn.Module):
    """A mask, a table, counts: none of them is ever written to."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.tensor([1, 0, 1, 1, 0]).bool())
        self.register_buffer("counts", torch.tensor([2, 0, 1, 3, 1]), persistent=False)
        self.register_buffer("many", torch.tensor(3))
        self.register_buffer("calls", torch.zeros(()))
        self.fc = nn.Linear(3, 2)


class Columns(Masked):
    def forward(self, x: Tensor) -> Any:
        return self.fc(x[:, self.mask]), x[..., ~self.mask], x[:, self.mask] * 2


class Rows(Masked):
    def forward(self, x: Tensor) -> Any:
        x = x.t()
        return x[self.mask], x[self.mask, 1], x[self.mask.nonzero().squeeze(1)]


class MaskItself(Masked):
    def forward(self, x: Tensor) -> Any:
        y = x.masked_fill(self.mask, 0.0)
        return y[:, self.mask], self.mask, torch.where(self.mask, x, y)


class Selected(Masked):
    def forward(self, x: Tensor) -> Any:
        both = torch.stack([self.mask, ~self.mask])
        return x.masked_select(self.mask), x[both], x[both & (self.counts > 0)].sum()


class Nonzero(Masked):
    def forward(self, x: Tensor) -> Any:
        rows, columns = torch.where(torch.stack([self.mask, ~self.mask]))
        return x[rows, columns], torch.nonzero(self.counts), columns.shape[0]


class Repeated(Masked):
    def forward(self, x: Tensor) -> Any:
        y = torch.repeat_interleave(x, self.counts, dim=1)
        twice = torch.repeat_interleave(x, self.many.reshape(1), dim=0)
        return y, torch.repeat_interleave(self.counts), y.shape[1], twice


class Item(Masked):
    def forward(self, x: Tensor) -> Any:
        n = self.many.item()
        return x[:, :n] * n, torch.arange(n), n, torch.zeros(self.counts.max().item())


class Written(Masked):
    def forward(self, x: Tensor) -> Any:
        y = x.clone()
        y[:, self.mask] = self.fc(x[:, ~self.mask].repeat(1, 2)[:, :3]).repeat(1, 2)[
            :, :3
        ]
        return y, torch.index_put(x, (torch.tensor([0]), self.mask), x[1, :3])


class Unique(Masked):
    def forward(self, x: Tensor) -> Any:
        values, inverse = torch.unique(self.counts, return_inverse=True)
        return values + x[0, 0], x[:, inverse % 5]


class BesidesState(Masked):
    def forward(self, x: Tensor) -> Any:
        self.calls.add_(1)
        y = x.clone()
        y[:, 1:3] += 1
        return y[:, self.mask] + self.calls


MODELS = (
    Columns,
    Rows,
    MaskItself,
    Selected,
    Nonzero,
    Repeated,
    Item,
    Written,
    Unique,
    BesidesState,
)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("source", ["module", "loaded", "decomposed"])
def test_size_is_known(
    model: type[Masked], source: str, check_module: Any, tmp_path: Path
) -> None:
    module, x = model(), torch.randn(2, 5)
    if source == "module":
        check_module(module, (x,), calls=2)
        return
    program: Any = torch.export.export(module, (x,))
    if source == "loaded":
        torch.export.save(program, tmp_path / "m.pt2")
        program = torch.export.load(tmp_path / "m.pt2")
    else:
        program = program.run_decompositions({})
    before = str(program)
    captured = capture(program)
    captured.lower()
    assert str(program) == before
    want = copy.deepcopy(module)(x)
    torch.testing.assert_close(captured.program.module()(x), want)


@pytest.mark.parametrize("model", [Columns, Written, BesidesState])
def test_beside_a_dynamic_batch(model: type[Masked], check_module: Any) -> None:
    check_module(
        model(), (torch.randn(3, 5),), more=[(torch.randn(7, 5),)],
        dynamic_shapes=({0: Dim("batch", min=2, max=9)},),
    )  # fmt: skip


def test_the_deciding_buffer_is_no_weight_to_replace(run_module: Any) -> None:
    _, lowered, program = run_module(Columns(), (torch.randn(2, 5),))
    assert "mask" not in lowered.program.weights
    with pytest.raises(TpuExportError, match="mask"):
        program.update_weights({"mask": torch.zeros(5, dtype=torch.bool).numpy()})


class Flipped(Masked):
    def forward(self, x: Tensor) -> Any:
        y = x[:, self.mask]
        self.mask.logical_not_()
        return y


class FlippedThroughAView(Flipped):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("head", self.mask[:2])

    def forward(self, x: Tensor) -> Any:
        y = x[:, self.mask]
        self.head.fill_(False)
        return y


class Temporary(Masked):
    def forward(self, x: Tensor) -> Any:
        mask = self.mask.clone()
        mask[0] = x[0, 0] > 0
        return x[:, mask]


@pytest.mark.parametrize("model", [Flipped, FlippedThroughAView, Temporary])
def test_what_a_call_writes_to_is_counted_at_each_call(
    model: type[Masked],
) -> None:
    captured = capture(model(), (torch.randn(2, 5),))
    assert captured.lower().program.counts
    with pytest.raises(TpuExportError) as caught:
        captured.lower(target="litert")
    assert caught.value.code == "TPX-0290"

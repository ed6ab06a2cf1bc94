"""Whole modules through capture, lowering, artifact and load."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from tpu_export.converters.stablehlo.registry import find_rule, lowers, registered_ops
from tpu_export.converters.stablehlo.shared_memory import SharedStorageError
from tpu_export.runtime.stablehlo import module_text

Pair = namedtuple("Pair", "left right")


class Fn(nn.Module):
    """A function as a module, with buffers."""

    def __init__(self, function: Callable[..., Any], **buffers: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def count(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.n.add_(1)
    return x + m.n


def cache(m: Any, x: torch.Tensor, pos: torch.Tensor) -> torch.Tensor:
    m.k.index_copy_(0, pos, x)
    return m.k.sum(0)


def slice_write(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.n[1:3] += x[1:3]
    view = m.n[:2]
    view.mul_(2)
    return m.n.sum() + x


def write_input(_: Any, x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x * 2


def write_input_view(_: Any, x: torch.Tensor) -> torch.Tensor:
    x.view(-1)[2:4] = 7.0
    return x


def twice(m: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    m.n.add_(1)
    m.n.mul_(2)
    return m.n, x


def average(m: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        m.n.mul_(0.9).add_(x, alpha=0.1)
    return x + m.n


def x4() -> torch.Tensor:
    return torch.randn(4)


STATE = {
    "counter": (count, {"n": torch.zeros(4)}, (x4,)),
    "kv cache": (
        cache,
        {"k": torch.zeros(6, 4)},
        (lambda: torch.randn(1, 4), lambda: torch.tensor([3])),
    ),
    "slices and views": (slice_write, {"n": torch.ones(4)}, (x4,)),
    "buffer written without gradients": (average, {"n": torch.zeros(4)}, (x4,)),
    "input written": (write_input, {}, (x4,)),
    "input written through a view": (
        write_input_view,
        {},
        (lambda: torch.randn(2, 3),),
    ),
    "buffer returned": (twice, {"n": torch.ones(4)}, (x4,)),
}


@pytest.mark.parametrize("name", STATE)
def test_state(check_module: Any, name: str) -> None:
    function, buffers, makers = STATE[name]
    module = Fn(function, **{k: v.clone() for k, v in buffers.items()})
    check_module(module, tuple(make() for make in makers), calls=3)


def test_batch_norm_in_training_updates_its_statistics(check_module: Any) -> None:
    lowered = check_module(
        nn.BatchNorm2d(3).train(), (torch.randn(2, 3, 4, 4),), calls=2
    )
    names = [slot.name for slot in lowered.program.signature.state]
    assert names == ["running_mean", "running_var", "num_batches_tracked"]


class Cond(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda v: self.a(v), lambda v: self.b(v), (x,))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(ids))


class Strided(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.randn(6, 8, 5)[2].T
        self.register_buffer("gain", torch.randn(8, 5).t()[::2], persistent=False)

    def forward(self, x: torch.Tensor) -> Any:
        return F.linear(x, self.table), F.linear(x, self.gain), 3, None


MODULES: dict[str, tuple[Any, tuple[torch.Tensor, ...]]] = {
    "cond": (Cond(), (torch.ones(2, 3),)),
    "tied": (Tied(), (torch.tensor([[1, 4]]),)),
    "strided constants": (Strided(), (torch.randn(3, 8),)),
    "literals": (
        Fn(lambda _, x: x * torch.tensor([1.0, 2.0]) + torch.tensor(3)),
        (torch.randn(2),),
    ),
    "namedtuple": (Fn(lambda _, x: Pair({"a": x + 1, 2: [x, x]}, x.sum())), (x4(),)),
    "identity": (Fn(lambda _, x: (x, x)), (x4(),)),
    "constant only": (Fn(lambda m, x: m.c * 2, c=torch.ones(3)), (x4(),)),
    "int64 stays": (Fn(lambda _, x: x + 2**40), (torch.tensor([5]),)),
    "float64 stays": (Fn(lambda _, x: x / 3), (torch.ones(2, dtype=torch.float64),)),
    "bfloat16": (Fn(lambda _, x: torch.softmax(x, -1)), (torch.randn(2, 8).bfloat16(),)),
    "conv bn relu": (
        nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU()).eval(),
        (torch.randn(2, 3, 9, 9),),
    ),
    "lstm": (nn.LSTM(4, 5, 2, bidirectional=True), (torch.randn(6, 2, 4),)),
    "encoder": (
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(),
        (torch.randn(2, 5, 8),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_module(check_module: Any, name: str) -> None:
    check_module(*MODULES[name])


def test_two_dynamic_dims_and_a_derived_one(check_module: Any) -> None:
    batch, half = Dim("batch", min=1, max=64), Dim("half", min=2, max=33)
    module = Fn(lambda _, x, y: (x.view(x.shape[0], -1, 2) @ y, x.sum(0), x.shape[1]))
    lowered = check_module(
        module,
        (torch.randn(3, 8), torch.randn(2, 5)),
        more=[
            (torch.randn(1, 4), torch.randn(2, 5)),
            (torch.randn(5, 20), torch.randn(2, 5)),
        ],
        dynamic_shapes={"args": ({0: batch, 1: 2 * half}, None)},
    )
    arguments = lowered.program.main.spec.arguments
    assert arguments[0].shape == ("batch", "2*half")


SIZES = {
    "strided convolution": (nn.Conv2d(3, 4, 3, 2, 1), {2: Dim("h", min=8, max=64)}),
    "pooling": (nn.MaxPool2d(2), {2: Dim("h", min=8, max=64)}),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_of_outputs_that_torch_and_jax_spell_apart(
    check_module: Any, name: str
) -> None:
    module, dims = SIZES[name]
    check_module(
        module,
        (torch.randn(2, 3, 16, 16),),
        more=[(torch.randn(2, 3, 9, 16),)],
        dynamic_shapes=(dims,),
    )


def test_weights_are_arguments_and_work_on_them_is_hoisted(run_module: Any) -> None:
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval()
    _, lowered, _ = run_module(module, (torch.randn(1, 3, 8, 8),))
    assert lowered.program.prepare is not None
    text = lowered.text()
    assert "rsqrt" not in text
    assert set(lowered.program.weights) == {
        "0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var"
    }  # fmt: skip
    assert "rsqrt" in module_text(lowered.program.prepare.module("tpu"))


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.head(x))


def test_every_op_carries_its_place_and_no_path_of_this_host(run_module: Any) -> None:
    _, lowered, _ = run_module(Named(), (torch.ones(2, 4),))
    text = lowered.text()
    places = re.findall(r"/(head)?/(aten\.\w+\.\w+)/test_lowering\.py:(\d+)/", text)
    assert {(module, op) for module, op, _ in places} == {
        ("head", "aten.linear.default"),
        ("", "aten.gelu.default"),
    }
    assert str(Path(__file__).parent) not in text


def test_bytes_depend_on_the_model_alone() -> None:
    code = """
import hashlib, torch
from torch import nn
import tpu_export as tx
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GELU(), nn.Flatten(), nn.LayerNorm(144)).eval()
program = tx.capture(model, (torch.ones(1, 3, 8, 8),)).lower().program
parts = [program.main.modules, program.prepare.modules]
print(hashlib.sha256(repr(parts).encode()).hexdigest())
"""
    digests = set()
    for hash_seed in ("0", "7"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"JAX_PLATFORMS": "cpu", "PYTHONHASHSEED": hash_seed, "PATH": ""},
        )
        digests.add(done.stdout)
    assert len(digests) == 1


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        base = torch.zeros(6)
        self.register_buffer("a", base[:4])
        self.register_buffer("b", base[2:])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.a.add_(1)
        return self.b + x


def test_written_buffers_that_overlap_are_refused(run_module: Any) -> None:
    with pytest.raises(SharedStorageError, match="a and b share memory"):
        run_module(Shared(), (torch.ones(4),))


@torch.library.custom_op("tpx_test::halve", mutates_args=())
def halve(x: torch.Tensor) -> torch.Tensor:
    return x / 2


@halve.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_a_rule_of_the_user(check_module: Any) -> None:
    op = torch.ops.tpx_test.halve.default
    if find_rule(op, "xla") is None:
        lowers(op)(lambda x: x / 2)
    check_module(Fn(lambda _, x: torch.ops.tpx_test.halve(x)), (x4(),))


def test_registering_twice_or_a_packet_raises() -> None:
    with pytest.raises(ValueError, match="duplicate"):
        lowers(torch.ops.aten.silu.default)(lambda x: x)
    with pytest.raises(TypeError, match="overloads"):
        lowers(torch.ops.aten.silu)(lambda x: x)  # type: ignore[arg-type]
    assert len(registered_ops()) > 600

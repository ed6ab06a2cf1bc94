"""State through a .tflite, handed on by the caller for several calls: what torch eager has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

from tpu_export.converters.litert import LiteRtModel
from tpu_export.converters.litert.engines import ENGINES, Calls, Engine, run_calls
from tpu_export.converters.stablehlo.arrays import as_numpy
from tpu_export.exporter.capture import capture
from tpu_export.parity.litert import to_litert
from tpu_export.parity.rungs import with_state

STEPS = 7
Tensors = tuple[torch.Tensor, ...]


class Stateful(nn.Module):
    """Buffers, and a function that writes to them."""

    def __init__(self, function: Callable[..., Any], **buffers: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(self, *args)


def _floats(*shape: int) -> Tensors:
    return (torch.randn(*shape),)


def _counted(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.calls += 1
    return x * m.calls


def _running_mean(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
    return x - m.mean


def _cache_at(m: Any, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """A cache [1, 8, 4] of keys: index_copy_ at a position that is an input, then attention."""
    m.keys.index_copy_(1, place, x)
    return torch.softmax(x @ m.keys.transpose(1, 2), -1) @ m.keys


def _cache_put(m: Any, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    m.keys[:, place] = x
    return m.keys.sum(1)


def _cache_mask(m: Any, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """What lies after the position is not attended to."""
    m.keys.index_copy_(1, place, x)
    late = torch.arange(8) > place
    scores = (x @ m.keys.transpose(1, 2)).masked_fill(late, -1e9)
    return torch.softmax(scores, -1) @ m.keys


def _ring(m: Any, x: torch.Tensor) -> torch.Tensor:
    """The last three rows; the place is state too."""
    m.rows.index_copy_(0, m.place, x)
    m.place.copy_((m.place + 1) % 3)
    return m.rows.mean(0)


def _shifted(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.rows.copy_(torch.cat([m.rows[1:], x]))
    return m.rows.amax(0)


def _two(m: Any, x: torch.Tensor) -> torch.Tensor:
    """`total` reads `last` before it is written, `last` reads what `total` became."""
    m.total.add_(m.last * x[0])
    m.last.copy_(x[0] + m.total * 0.5)
    return m.total - m.last


def _swapped(m: Any, x: torch.Tensor) -> torch.Tensor:
    old = m.a.clone()
    m.a.copy_(m.b)
    m.b.copy_(old + x[0])
    return m.a * 2


def _flags(m: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    m.seen.logical_or_(x[0] > 1)
    m.level.copy_((m.level + 100).to(torch.uint8))  # wraps round at 256
    return torch.where(m.seen, x, torch.zeros_like(x)), m.level.to(torch.float32)


def _small(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.a.add_(50)
    m.b.add_(m.a.to(torch.int16))
    m.c.sub_(2**40)
    return x + m.a.to(torch.float32) + m.b.to(torch.float32)


def _read_first(m: Any, x: torch.Tensor) -> torch.Tensor:
    """The result is the state of before."""
    before = m.last.clone()
    m.last.copy_(x)
    return before


def _given_back(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.last.mul_(x[0])
    return m.last


def _overwritten(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.last.copy_(x)
    return x + 1


def _scalar(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.beta.mul_(0.5)
    return x / (1 - m.beta)


def _part(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.table[1:3, ::2] = x
    m.table[0] += 1
    return m.table.sum(1)


def _position(step: int) -> Tensors:
    return torch.randn(1, 1, 4), torch.tensor([step % 8])


def _positions(step: int) -> Tensors:
    return torch.randn(1, 2, 4), torch.tensor([step, (3 * step + 1) % 8])


def _row(_: int) -> Tensors:
    return _floats(1, 4)


Draw = Callable[[int], Tensors]
FLAGS = {
    "seen": torch.zeros(4, dtype=torch.bool),
    "level": torch.tensor([7], dtype=torch.uint8),
}
SMALL = {
    "a": torch.tensor([1], dtype=torch.int8),
    "b": torch.tensor([5], dtype=torch.int16),
    "c": torch.tensor([2**42]),
}
CASES: dict[str, tuple[Callable[..., Any], dict[str, torch.Tensor], Draw]] = {
    "counter": (_counted, {"calls": torch.tensor([3])}, _row),
    "counter32": (_counted, {"calls": torch.tensor([3], dtype=torch.int32)}, _row),
    "counter0d": (_counted, {"calls": torch.tensor(0)}, _row),
    "running_mean": (_running_mean, {"mean": torch.randn(4)}, lambda _: _floats(5, 4)),
    "cache_index_copy": (_cache_at, {"keys": torch.zeros(1, 8, 4)}, _position),
    "cache_index_put": (_cache_put, {"keys": torch.zeros(1, 8, 4)}, _position),
    "cache_two_places": (_cache_put, {"keys": torch.randn(1, 8, 4)}, _positions),
    "cache_masked": (_cache_mask, {"keys": torch.zeros(1, 8, 4)}, _position),
    "ring": (_ring, {"rows": torch.zeros(3, 4), "place": torch.tensor([1])}, _row),
    "shift_register": (_shifted, {"rows": torch.zeros(3, 4)}, _row),
    "two": (_two, {"total": torch.zeros(4), "last": torch.ones(4)}, _row),
    "swapped": (_swapped, {"a": torch.randn(4), "b": torch.randn(4)}, _row),
    "flags": (_flags, FLAGS, _row),
    "small_integers": (_small, SMALL, _row),
    "read_before": (_read_first, {"last": torch.randn(1, 4)}, _row),
    "given_back": (_given_back, {"last": torch.randn(4)}, _row),
    "overwritten": (_overwritten, {"last": torch.randn(1, 4)}, _row),
    "scalar": (_scalar, {"beta": torch.tensor(0.5)}, _row),
    "part": (_part, {"table": torch.randn(4, 5)}, lambda _: _floats(2, 3)),
}  # fmt: skip


def state_of(module: nn.Module, names: Sequence[str]) -> dict[str, torch.Tensor]:
    held = module.state_dict()
    return {name: held[name].clone() for name in names}


def check_steps(
    model: LiteRtModel, module: nn.Module, steps: Sequence[Tensors], engine: Engine
) -> None:
    """Compare outputs and state with eager's after each of the calls."""
    signature = model.signatures["forward"]
    slots = [slot.name for slot in signature.state]
    assert slots
    inputs = [
        {spec.name: as_numpy(x) for spec, x in zip(signature.inputs, s, strict=True)}
        for s in steps
    ]
    initial = {n: as_numpy(x) for n, x in state_of(module, slots).items()}
    calls = Calls(
        "forward",
        [with_state(inputs[0], initial), *inputs[1:]],
        [f"state.{name}" for name in slots],
    )
    (found,) = run_calls(model.path, engine, [calls])
    eager = deepcopy(module)
    for number, (step, got) in enumerate(zip(steps, found, strict=True)):
        with torch.no_grad():
            made = eager(*step)
        wanted = made if isinstance(made, tuple) else (made,)
        outputs = dict(zip([o.name for o in signature.outputs], wanted, strict=True))
        state = {f"state.{n}": x for n, x in state_of(eager, slots).items()}
        for name, want in {**outputs, **state}.items():
            where = f"{name} of call {number} in {engine}"
            value = torch.from_numpy(got[name])
            torch.testing.assert_close(value, want, msg=lambda m, w=where: f"{w}: {m}")


QUICK = {"counter", "running_mean", "cache_masked", "ring", "two", "flags"}
CHOSEN = [c if c in QUICK else pytest.param(c, marks=pytest.mark.slow) for c in CASES]


@pytest.mark.parametrize("name", CHOSEN)
def test_state_follows_eager(name: str) -> None:
    function, buffers, draw = CASES[name]
    torch.manual_seed(0)
    module = Stateful(function, **deepcopy(buffers)).eval()
    steps = [draw(i) for i in range(STEPS)]
    model = to_litert(deepcopy(module), steps[0])
    for engine in ENGINES:
        check_steps(model, module, steps, engine)


class Aliased(nn.Module):
    """One tensor under two names, written to by both."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.zeros(3))
        self.inner = nn.Module()
        self.inner.register_buffer("b", self.a)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.a.add_(x)
        self.inner.b.mul_(0.5)
        return self.a + self.inner.b


class Overlapping(nn.Module):
    """A buffer that is a part of another's memory, and a parameter that is written to."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.zeros(4, 3))
        self.register_buffer("row", self.a[1])
        self.w = nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.row.add_(x * self.w)
        self.w.mul_(0.5)
        return self.a.sum(0)


@pytest.mark.parametrize(
    ("make", "slots"), [(Aliased, {"a"}), (Overlapping, {"a", "w"})]
)
def test_memory_of_two_names_is_one_slot(
    make: Callable[[], nn.Module], slots: set[str]
) -> None:
    torch.manual_seed(0)
    module = make().eval()
    steps = [_floats(3) for _ in range(STEPS)]
    model = to_litert(deepcopy(module), steps[0])
    assert {slot.name for slot in model.signatures["forward"].state} == slots
    for engine in ENGINES:
        check_steps(model, module, steps, engine)


def _running(dims: str) -> tuple[nn.Module, LiteRtModel]:
    torch.manual_seed(0)
    module = Stateful(_running_mean, mean=torch.randn(4)).eval()
    shapes = (({0: Dim("n", max=8)},),)
    captured = capture(deepcopy(module), _floats(4, 4), dynamic_shapes=shapes)
    if dims == "symbolic":
        return module, to_litert(captured, dynamic_dims="symbolic")
    return module, to_litert(captured, buckets={"n": (2, 4, 8)})


@pytest.mark.parametrize("dims", ["buckets", "symbolic"])
def test_state_goes_on_as_sizes_change(dims: str) -> None:
    module, model = _running(dims)
    for engine in ENGINES:
        eager = deepcopy(module)
        state = as_numpy(eager.mean).copy()
        for n in (4, 2, 8, 2, 4):
            (x,) = _floats(n, 4)
            feeds = {"args_0": as_numpy(x), "state.mean": state}
            found = model.run(engine=engine, **feeds)
            with torch.no_grad():
                want = eager(x)
            state = found["state.mean"]
            torch.testing.assert_close(torch.from_numpy(found["output_0"]), want)
            torch.testing.assert_close(torch.from_numpy(state), eager.mean)


class Decoder(nn.Module):
    """A cache that one signature fills with three rows, and another goes on with one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(1, 8, 4))
        self.register_buffer("length", torch.zeros(1, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = self.length + torch.arange(x.shape[1])
        self.keys.index_copy_(1, places, x)
        self.length.add_(x.shape[1])
        return self.keys.sum(1) / self.length


@pytest.mark.parametrize("engine", ENGINES)
def test_state_goes_on_from_one_signature_to_the_other(engine: Engine) -> None:
    torch.manual_seed(0)
    module = Decoder().eval()
    model = to_litert(
        {
            "prefill": capture(deepcopy(module), (torch.randn(1, 3, 4),), {}),
            "decode": capture(deepcopy(module), (torch.randn(1, 1, 4),), {}),
        }
    )
    state = {n: as_numpy(x) for n, x in state_of(module, ["keys", "length"]).items()}
    for name, n in (("prefill", 3), *[("decode", 1)] * 4):
        (x,) = _floats(1, n, 4)
        feeds = with_state({"x": as_numpy(x)}, state)
        found = model.run(signature=name, engine=engine, **feeds)
        with torch.no_grad():
            want = module(x)
        torch.testing.assert_close(torch.from_numpy(found["output_0"]), want)
        state = {slot: found[f"state.{slot}"] for slot in state}
    assert state["length"].tolist() == [7]
    torch.testing.assert_close(torch.from_numpy(state["keys"]), module.keys)

"""Buckets: what is compiled, what is refused, and what a serving process finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from tpu_export.exporter.buckets import (
    BucketError,
    check_buckets,
    compiled_sizes,
    left_out,
)
from tpu_export.exporter.capture import Captured, capture
from tpu_export.exporter.stages import Lowered, compile_signatures
from tpu_export.runtime.artifact import Artifact
from tpu_export.runtime.executables import NoExecutableError
from tpu_export.runtime.program import load

B, T = Dim("batch", min=2, max=64), Dim("tokens", max=128)


class Scorer(nn.Module):
    """Weight-only work, state, and two dynamic dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        return (x @ (self.weight * 2).tanh()).sum(1) + self.calls


@pytest.fixture(scope="module")
def scorer() -> Captured:
    torch.manual_seed(0)
    return capture(Scorer(), (torch.randn(3, 5, 4),), dynamic_shapes=({0: B, 1: T},))


@pytest.fixture(scope="module")
def lowered(scorer: Captured) -> Lowered:
    return scorer.lower()


def test_every_combination_is_compiled(scorer: Captured) -> None:
    sizes = compiled_sizes(scorer, {"batch": [8, 2], "tokens": [16, 1]})
    assert [tuple(s.values()) for s in sizes] == [(8, 16), (8, 1), (2, 16), (2, 1)]


def test_a_dimension_without_buckets_has_the_examples_size(scorer: Captured) -> None:
    assert compiled_sizes(scorer, {"batch": [8]}) == [{"batch": 8, "tokens": 5}]
    assert compiled_sizes(scorer, {}) == [{"batch": 3, "tokens": 5}]


WRONG: dict[str, tuple[Any, str, str]] = {
    "unknown": ({"bach": [2]}, "no dynamic dimension 'bach'", "did you mean batch?"),
    "far": ({"x": [2]}, "no dynamic dimension 'x'", "dimensions are batch, tokens"),
    "too small": ({"batch": [1]}, "bucket batch=1 is outside 2 … 64", "holds for batch"),
    "too large": ({"tokens": [8, 129]}, "bucket tokens=129 is outside 0 … 128", "wider"),
    "no integer": ({"batch": [2, 4.0]}, "4.0 is no size of batch", "whole numbers"),
    "a bool": ({"batch": [True]}, "True is no size of batch", "whole numbers"),
    "twice": ({"batch": [4, 2, 4]}, "batch has the bucket 4 twice", "once"),
    "none": ({"batch": []}, r"the buckets of batch are \[\]", "give a list"),
    "a number": ({"batch": 4}, "the buckets of batch are 4", "give a list"),
    "a text": ({"batch": "48"}, "the buckets of batch are '48'", "give a list"),
    "too many": (
        {"batch": [*range(2, 50)], "tokens": [*range(1, 50)]},
        "2352 combinations of buckets for 'forward', more than 256", "fewer sizes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_refused(name: str, scorer: Captured) -> None:
    buckets, message, hint = WRONG[name]
    with pytest.raises(BucketError, match=message) as info:
        check_buckets({"forward": scorer}, buckets)
    assert hint in info.value.hint
    assert info.value.code == "TPX-0307"


def test_a_size_of_more_than_32_bits_is_refused() -> None:
    shapes = ({0: Dim("n", min=2)},)
    captured = capture(lambda x: x + 1, (torch.ones(3),), dynamic_shapes=shapes)
    with pytest.raises(BucketError, match=r"n=2147483648 is outside \d … 2147483647"):
        check_buckets({"forward": captured}, {"n": [2**31]})


def test_a_static_model_has_no_buckets() -> None:
    captured = capture(lambda x: x + 1, (torch.ones(3),))
    check_buckets({"forward": captured}, {})
    with pytest.raises(BucketError, match="every size of the model is fixed"):
        captured.lower().compile((), buckets={"batch": [1]})


def test_combinations_that_break_a_constraint_are_left_out() -> None:
    captured = capture(
        lambda q, k: q * 2 if q.shape[0] <= k.shape[0] else q * 3,
        (torch.ones(2), torch.ones(4)),
        dynamic_shapes=({0: Dim("q", max=64)}, {0: Dim("k", max=64)}),
    )
    buckets = {"q": [1, 8], "k": [4, 8]}
    sizes = [tuple(s.values()) for s in compiled_sizes(captured, buckets)]
    assert sizes == [(1, 4), (1, 8), (8, 8)]
    (note,) = left_out(captured, buckets)
    assert (
        note == "forward: no executable for q=8 k=4: the model was captured for q <= k"
    )
    with pytest.raises(BucketError, match="captured for q <= k"):
        check_buckets({"forward": captured}, {"q": [8], "k": [4]})


def test_a_program_picks_the_executable_of_its_sizes(
    lowered: Lowered, tmp_path: Path
) -> None:
    buckets = {"batch": [2, 8], "tokens": [1, 16]}
    path = lowered.compile((), buckets=buckets).save(tmp_path / "m.tpuexe")
    program = load(path, device="cpu")
    forward = program["forward"]
    assert [tuple(b.values()) for b in forward.buckets] == [
        (2, 1), (2, 16), (8, 1), (8, 16),
    ]  # fmt: skip
    weight = np.tanh(2 * lowered.captured.program.state_dict["weight"].detach().numpy())
    calls = 0
    for batch, tokens in ((8, 16), (2, 1), (8, 1), (2, 16), (8, 16)):
        x = np.random.default_rng(0).normal(size=(batch, tokens, 4)).astype("f4")
        calls += 1
        np.testing.assert_allclose(
            forward(x), (x @ weight).sum(1) + calls, rtol=1e-4, atol=1e-4
        )
        sizes = f"batch={batch} tokens={tokens}"
        assert program.origin["forward"] == f"executable cpu/host {sizes}"
    assert program.compilations == 0

    x = np.ones((3, 16, 4), np.float32)
    np.testing.assert_allclose(forward(x), (x @ weight).sum(1) + calls + 1, rtol=1e-4)
    assert program.compilations == 1
    assert program.origin["forward"] == (
        "compiled from StableHLO: the artifact has no executable for batch=3 tokens=16, "
        "but for batch=2 tokens=1, batch=2 tokens=16, batch=8 tokens=1, batch=8 tokens=16"
    )
    with (
        load(path, device="cpu", executables="require") as strict,
        pytest.raises(NoExecutableError, match="no executable for batch=3 tokens=16"),
    ):
        strict(x)


def test_weight_only_work_is_stored_once(lowered: Lowered, tmp_path: Path) -> None:
    compiled = lowered.compile((), buckets={"batch": [2, 8]})
    manifest = Artifact(compiled.save(tmp_path / "m.tpuexe")).manifest
    assert [x.dims["batch"] for x in manifest.executables] == [2, 8]
    (prepare,) = {x.prepare for x in manifest.executables}
    assert prepare == "executables/cpu/host/forward.batch=2.tokens=5.prepare.bin"


def test_signatures_have_the_buckets_of_their_own_dimensions(scorer: Captured) -> None:
    still = capture(lambda x: x * 2, (torch.ones(3),), name="still")
    wide = capture(
        lambda x: x * 2, (torch.ones(3),), dynamic_shapes=({0: B},), name="wide"
    )
    signatures = {c.name: c.lower() for c in (still, wide)}
    compiled = compile_signatures(signatures, (), buckets={"batch": [2, 4]})
    found = {name: [t.dims for t in ts] for name, ts in compiled.targets.items()}
    assert found == {"still": [{}], "wide": [{"batch": 2}, {"batch": 4}]}


def test_estimates_are_named_by_their_sizes(lowered: Lowered) -> None:
    compiled = lowered.compile(["v5e-1"], cpu=False, buckets={"batch": [2, 8]})
    names = ["v5e:1x1 batch=2 tokens=5", "v5e:1x1 batch=8 tokens=5"]
    assert list(compiled.report["forward"]) == names

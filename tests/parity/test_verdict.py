"""The verdict's gates on given numbers, and its figures on a real pair of files."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tests.parity.conftest import Files
from tpu_export.converters.litert.race import interleaved
from tpu_export.converters.litert.racing import Latency, Left, Race
from tpu_export.exporter.capture import Captured, capture
from tpu_export.exporter.stages import lower
from tpu_export.parity.agreement import Agreement, agreement
from tpu_export.parity.eager import run_eager
from tpu_export.parity.judging import judge, real_samples
from tpu_export.parity.references import Reference
from tpu_export.parity.verdict import (
    Gates,
    QuantizationNoiseError,
    QuantizationSlowError,
    Sizes,
    Verdict,
)
from tpu_export.parity.verdict_text import verdict_text


def row(output: str, snr: float, file: str = "quantized") -> Agreement:
    return Agreement("forward", output, file, "eager", snr, 1.0, 0.0, 0.0, None, None)


def given(*rows: Agreement, ratio: float = 1.0) -> Verdict:
    race = Race(
        [
            Latency("interpreter", [1e-3, 2e-3, 3e-3], [2e-3 * ratio] * 3),
            Latency("compiled", [1e-3] * 3, [0.5e-3] * 3),
        ],
        plain=Left(1, {}),
        quantized=Left(3, {"SOFTMAX": 2, "QUANTIZE": 4}),
    )
    return Verdict(rows, Sizes(1000, 300), {"forward": race}, casts=4)


def test_the_output_with_the_least_decibels_is_named() -> None:
    verdict = given(row("a", 40.0), row("b", 19.5), row("a", 5.0, file="float"))
    with pytest.raises(QuantizationNoiseError, match=r"'b' of 'forward'.* 19\.5 dB"):
        Gates(min_snr=20).check(verdict)
    Gates(min_snr=19.5).check(verdict)
    Gates().check(verdict)


@pytest.mark.parametrize("snr", [math.nan, -math.inf])
def test_no_number_of_decibels_is_too_few(snr: float) -> None:
    with pytest.raises(QuantizationNoiseError):
        Gates(min_snr=0).check(given(row("a", snr)))


def test_the_slowest_engine_is_named() -> None:
    verdict = given(row("a", 40.0), ratio=1.8)
    with pytest.raises(QuantizationSlowError, match=r"1\.80 times .* interpreter") as e:
        Gates(max_slowdown=1.5).check(verdict)
    assert "SOFTMAX 2" in str(e.value)
    Gates(max_slowdown=1.8).check(verdict)


def test_slower_is_said_aloud_with_the_ops() -> None:
    text = verdict_text(given(row("a", 40.0), ratio=1.8))
    assert "SLOWER than float: 'forward' takes 1.80 times as long" in text
    assert "no longer takes SOFTMAX 2; it takes the rest in 3 parts, not 1" in text
    assert "no op was timed" in text
    assert "SLOWER" not in verdict_text(given(row("a", 40.0), ratio=1.0))


def test_what_is_timed_takes_turns() -> None:
    order: list[str] = []
    times = interleaved(
        [lambda: order.append("a"), lambda: order.append("b")],
        rounds=3,
        seconds=0.0,
        clock=iter(range(100)).__next__,
    )
    assert "".join(order) == "aabb" + "ab" * 3  # warm-up and first guess, then rounds
    assert times == [[1.0] * 3, [1.0] * 3]


def test_top_k_is_of_outputs_that_look_like_logits() -> None:
    logits = np.eye(3, 10, dtype=np.float32)
    other = np.roll(logits, 1, axis=0)
    names = ("forward", "y", "quantized", "eager")
    assert agreement(names, [logits], [logits]).top1 == 1.0
    mixed = agreement(names, [np.stack([logits, other])], [np.stack([logits, logits])])
    assert mixed.top1 == 0.5
    assert agreement(names, [logits[:, :9]], [logits[:, :9]]).top1 is None
    assert agreement(names, [logits.astype("i4")], [logits.astype("i4")]).top1 is None


def references_of(captured: Captured, files: Files) -> list[Reference]:
    samples = real_samples(captured, files.samples)
    program = lower(captured, target="litert").program
    return [Reference(program.signature, samples, run_eager(captured, {}, samples))]


def test_a_pair_of_files_is_judged(transformer: Files) -> None:
    captured = capture(transformer.model, (torch.randn(2, 8, 32),), {})
    verdict = judge(
        references_of(captured, transformer),
        {},
        transformer.plain,
        transformer.integer,
        seconds=0.05,
    )
    by_pair = {(a.file, a.reference): a for a in verdict.agreements}
    assert by_pair["float", "eager"].snr > 100
    assert by_pair["float", "eager"].top1 == 1.0
    assert 5 < by_pair["quantized", "eager"].snr < 30
    assert by_pair["quantized", "eager"].top5 is not None
    assert verdict.sizes.quantized < verdict.sizes.plain
    race = verdict.races["forward"]
    assert [x.engine for x in race.latencies] == ["interpreter", "compiled"]
    assert race.plain == Left(1, {})
    with pytest.raises(QuantizationNoiseError, match="output_0"):
        Gates(min_snr=60).check(verdict)
    assert '"agreements"' in __import__("json").dumps(verdict.to_json())

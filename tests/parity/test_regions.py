"""The regions that stay in float are few, enough, and those around the bad layer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.parity.conftest import Files, quantize
from tpu_export.converters.litert.graph import read_graph
from tpu_export.converters.litert.isolate import tensor_values
from tpu_export.parity import layer_runs
from tpu_export.parity.regions import Quantize, Search, SnrUnreachedError, covers


def quantizer_of(files: Files, folder: Path) -> Quantize:
    graph = read_graph(files.plain, "forward")

    def run(regions: Sequence[str]) -> Path:
        names = {
            graph.subgraph.tensors[node.outputs[0]].name.decode()
            for node in graph.nodes
            if any(covers(region, node.place.module) for region in regions)
        }
        left = f"^({'|'.join(map(re.escape, sorted(names)))});?$" if names else ""
        name = "-".join(regions) or "none"
        return quantize(files.plain, files.samples, folder / f"{name}.tflite", left)

    return run


@pytest.fixture
def search(transformer: Files, tmp_path: Path) -> Search:
    make = quantizer_of(transformer, tmp_path)
    return Search(transformer.plain, make, transformer.samples, "forward")


def test_the_region_of_the_bad_layer_stays_in_float(search: Search) -> None:
    found = search.run(22.0, timed=False)
    assert found.after.regions == ("blocks.1.attention",)
    assert found.before.snr < 22 <= found.after.snr
    (bought,) = found.bought
    assert bought.size > 0
    assert bought.snr == pytest.approx(found.after.snr - found.before.snr)
    assert found.layers[0].module == "blocks.1.attention"
    assert found.table()[1][0] == "blocks.1.attention"


def test_nothing_stays_where_nothing_must(search: Search) -> None:
    found = search.run(0.0)
    assert found.after.regions == ()
    assert found.tried == 1


def test_a_file_is_run_once_for_its_decibels_and_its_layers(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[object] = []
    monkeypatch.setattr(
        layer_runs,
        "tensor_values",
        lambda *given: runs.append(0) or tensor_values(*given),
    )
    search.run(0.0)
    # The float file and the quantized one, whole; both cut into layers, and into ops.
    assert len(runs) == 6


def test_what_cannot_be_reached_is_an_error(search: Search) -> None:
    with pytest.raises(SnrUnreachedError, match="dB is the best found"):
        search.run(500.0)

from __future__ import annotations

import json

import pytest

from tpu_export.converters.tpu.chips import CHIPS
from tpu_export.converters.tpu.cost import (
    COMPILER,
    CostReport,
    Memory,
    PlaceCost,
    cost_report,
    place,
    roofline,
)
from tpu_export.converters.tpu.hlo import Cost, Costs

PLACES = [
    (
        "jit(call)/net.fc/aten.linear.default/model.py:3/dot_general",
        ("net.fc", "aten.linear.default", "model.py:3"),
    ),
    (
        "net.act/aten.gelu.default/sub/model.py:35/mul",
        ("net.act", "aten.gelu.default", "sub/model.py:35"),
    ),
    (
        "jit(main)/a/higher_order.scan/m.py:1/while/body/b.c/aten.add.Tensor/m.py:2/add",
        ("b.c", "aten.add.Tensor", "m.py:2"),
    ),
    ("jit(f)//aten.add.Tensor/m.py:9/add", ("", "aten.add.Tensor", "m.py:9")),
    ("x/my_lib.fold.default/m.py:4/add", ("x", "my_lib.fold.default", "m.py:4")),
    ("layers.0/_operator.mul/m.py:5", ("layers.0", "_operator.mul", "m.py:5")),
    ("jit(f)/dot_general", (COMPILER, "", "")),
    ("", (COMPILER, "", "")),
]


@pytest.mark.parametrize(("op_name", "expected"), PLACES)
def test_places(op_name: str, expected: tuple[str, str, str]) -> None:
    assert place(op_name) == expected


def report() -> CostReport:
    costs = (
        Cost("enc.0.fc/aten.linear.default/m.py:3/dot", 300.0, "compiler", "fusion"),
        Cost("enc.0.fc/aten.linear.default/m.py:3/add", 100.0, "compiler", "fusion"),
        Cost("enc.1/aten.sort.default/m.py:4/sort", 50.0, "roofline", "sort"),
        Cost("", 5.0, "compiler", "copy"),
    )
    memory = Memory(100, 20, 5, 7, 3, 2**30)
    analysis = {"flops": 1e6, "bytes accessed": 2e6, "optimal_seconds": -1.0}
    return cost_report("v5e:1x1", "v5e", memory, analysis, Costs(costs, 2))


def test_figures_add_up() -> None:
    cost = report()
    assert cost.memory.total == 100 + 20 - 5 + 7 + 3
    assert cost.cycles == 455 == sum(p.cycles for p in cost.places)
    assert cost.seconds == pytest.approx(455 / 1.5e9)
    assert cost.places[0] == PlaceCost(
        "enc.0.fc", "aten.linear.default", "m.py:3", 400.0
    )
    assert cost.by_module(1) == {"enc": 450.0, COMPILER: 5.0}
    assert cost.by_op()["aten.linear.default"] == 400.0


@pytest.mark.parametrize(
    "words", ["estimate", "assumption", "roofline for sort", "2 loops"]
)
def test_the_note_says_what_the_figures_are(words: str) -> None:
    assert words in report().note


def test_json_round_trip() -> None:
    cost = report()
    assert CostReport.from_json(json.loads(json.dumps(cost.to_json()))) == cost


@pytest.mark.parametrize(
    ("analysis", "seconds"),
    [
        ({"flops": 197e12, "bytes accessed": 1.0}, 1.0),
        ({"flops": 1.0, "bytes accessed": 819e9 / 2}, 0.5),
        ({}, 0.0),
    ],
)
def test_a_program_that_cannot_be_read_has_a_bound(
    analysis: dict[str, float], seconds: float
) -> None:
    memory = Memory(0, 0, 0, 0, 0, 1)
    costs = roofline(analysis, CHIPS["v5e"])
    whole = cost_report("v5e:1x1", "v5e", memory, analysis, costs)
    assert whole.seconds == pytest.approx(seconds)
    assert "roofline for the whole program" in whole.note

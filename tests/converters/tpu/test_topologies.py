from __future__ import annotations

import pytest

from tpu_export.converters.tpu.chips import CHIPS, Chip
from tpu_export.converters.tpu.topologies import (
    UnknownTopologyError,
    cloud_names,
    parse_topology,
)

GIB = 2**30

KNOWN = [  # text, libtpu's name, chips, devices, hosts, HBM of a chip in GiB
    ("v2-8", "v2:2x2", 4, 8, 1, 16),
    ("v3-8", "v3:2x2", 4, 8, 1, 32),
    ("v3-32", "v3:4x4", 16, 32, 4, 32),
    ("v4-8", "v4:2x2x1", 4, 4, 1, 32),
    ("v4-16", "v4:2x2x2", 8, 8, 2, 32),
    ("v4-32", "v4:2x2x4", 16, 16, 4, 32),
    ("v4-128", "v4:4x4x4", 64, 64, 16, 32),
    ("v5e-1", "v5e:1x1", 1, 1, 1, 16),
    ("v5e-8", "v5e:2x4", 8, 8, 1, 16),
    ("v5litepod-4", "v5e:2x2", 4, 4, 1, 16),
    ("v5litepod-256", "v5e:16x16", 256, 256, 64, 16),
    ("v5p-8", "v5p:2x2x1", 4, 4, 1, 95),
    ("v5p-64", "v5p:2x4x4", 32, 32, 8, 95),
    ("v6e-1", "v6e:1x1", 1, 1, 1, 32),
    ("V6E-8 ", "v6e:2x4", 8, 8, 1, 32),
    ("v6e-32", "v6e:4x8", 32, 32, 8, 32),
    ("tpu7x-2", "tpu7x:1x1x1", 1, 2, 1, 192),
    ("tpu7x-8", "tpu7x:2x2x1", 4, 8, 1, 192),
    ("tpu7x-128", "tpu7x:4x4x4", 64, 128, 16, 192),
    ("v6e:2x2", "v6e:2x2", 4, 4, 1, 32),
    ("v6e:1x1", "v6e:1x1", 1, 1, 1, 32),
    ("v5:2x2x1", "v5p:2x2x1", 4, 4, 1, 95),
    ("v5p:4x4x12", "v5p:4x4x12", 192, 192, 48, 95),
]


@pytest.mark.parametrize(("text", "libtpu", "chips", "devices", "hosts", "gib"), KNOWN)
def test_names(
    text: str, libtpu: str, chips: int, devices: int, hosts: int, gib: int
) -> None:
    topology = parse_topology(text)
    assert topology.name == text.strip()
    assert (topology.libtpu, topology.chips, topology.devices) == (
        libtpu,
        chips,
        devices,
    )
    assert (topology.hosts, topology.hbm_bytes) == (hosts, gib * GIB)


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("v5e-3", "v5e-4"),
        ("v6e8", "v6e-8"),
        ("v5p-1", "v5p-8"),
        ("v7x-8", "tpu7x-8"),
        ("v5litepod-2", "v5e-1"),
        ("v6e:2x2x1", "v6e-4"),
        ("v5e:32x32", "v5e-1"),
        ("v5e:0x4", "v5e-1"),
        ("h100", "v5e-1"),
        ("", "v5e-1"),
        ("v5e-", "v5e-1"),
    ],
)
def test_unknown_names_show_near_ones(text: str, near: str) -> None:
    with pytest.raises(UnknownTopologyError) as caught:
        parse_topology(text)
    assert caught.value.code == "TPX-0301"
    assert near in caught.value.hint


def test_every_listed_name_parses() -> None:
    assert len(cloud_names()) > 50
    assert all(parse_topology(name).chips for name in cloud_names())


@pytest.mark.parametrize("chip", CHIPS.values(), ids=CHIPS.keys())
def test_every_figure_has_a_source(chip: Chip) -> None:
    assert chip.source.startswith("https://")
    assert chip.clock_source

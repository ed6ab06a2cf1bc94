"""Every test runs on the CPU, seeded, without a network."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")

import pytest


def pytest_collectstart() -> None:
    """Seed what a test module draws while it is imported, whatever ran before."""
    import torch

    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    import torch

    torch.manual_seed(0)

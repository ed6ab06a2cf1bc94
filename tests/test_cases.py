"""The bank of model patterns that broke other converters, through the CPU path.

The bank lies beside a checkout of this project, not in it; known_case_failures.toml names
the cases that fail, with the reason. A case listed there that passes fails the test.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

from tpu_export.converters.stablehlo.arrays import as_numpy
from tpu_export.exporter.capture import capture
from tpu_export.exporter.save import save
from tpu_export.exporter.stages import lower
from tpu_export.parity.eager import flatten_like
from tpu_export.runtime.program import load

HERE = Path(__file__).parent
BANK = HERE.parents[1] / "shared" / "cases"
KNOWN = tomllib.loads((HERE / "known_case_failures.toml").read_text())
INDEX = (
    {e["id"]: e for e in json.loads((BANK / "index.json").read_text())}
    if (BANK / "index.json").exists()
    else {}
)
EXPORTABLE = sorted(
    name for name, entry in INDEX.items() if entry.get("export_ok", True)
)


def case(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, BANK / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def calls(bank: ModuleType) -> list[tuple[Any, Any]]:
    _, args, kwargs = bank.make()
    again = [bank.make()[1:]] if getattr(bank, "STATEFUL", False) else []
    more = list(bank.ALT_INPUTS()) if hasattr(bank, "ALT_INPUTS") else []
    return [(args, kwargs), *again, *more]


def check(name: str, folder: Path) -> None:
    bank = case(name)
    model, args, kwargs = bank.make()
    captured = capture(
        model, args, kwargs, dynamic_shapes=getattr(bank, "DYNAMIC", None)
    )
    if getattr(bank, "ROUND_TRIP", False):
        torch.export.save(captured.program, folder / "case.pt2")
        captured = capture(folder / "case.pt2")
    path = folder / "case.tpuexe"
    with save(path, {"forward": lower(captured).program}, {}) as writer:
        writer.commit()
    program = load(path, device="cpu")
    eager = bank.make()[0]
    for given in calls(bank):
        ours = pytree.tree_map_only(
            torch.Tensor, lambda t: np.array(as_numpy(t)), given
        )
        with torch.no_grad():
            want = eager(*given[0], **given[1])
        got = program(*ours[0], **ours[1])
        if getattr(bank, "RANDOM", False):
            tensors = pytree.tree_map_only(np.ndarray, torch.from_numpy, got)
            assert bank.CHECK(tensors, *given) is None
            continue
        tree = captured.signature.output_tree
        pairs = zip(flatten_like(tree, got), flatten_like(tree, want), strict=True)
        for mine, theirs in pairs:
            close(mine, theirs, getattr(bank, "TOL", {}))
        if getattr(bank, "MUTATES_INPUT", False):
            for mine, theirs in zip(
                *map(pytree.tree_leaves, (ours, given)), strict=True
            ):
                close(mine, theirs, {})


def close(mine: Any, theirs: Any, tolerance: Any) -> None:
    limits = (
        tolerance
        if isinstance(tolerance, dict)
        else dict(zip(("rtol", "atol"), tolerance, strict=True))
    )
    expected = theirs if isinstance(theirs, torch.Tensor) else torch.tensor(theirs)
    array = np.array(mine)
    if array.dtype.name == "bfloat16":
        actual = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    else:
        actual = torch.from_numpy(array)
    torch.testing.assert_close(actual, expected.contiguous(), equal_nan=True, **limits)


@pytest.mark.skipif(not INDEX, reason="the bank of cases is not beside this checkout")
def test_the_list_of_known_failures_names_cases() -> None:
    assert set(KNOWN) <= set(EXPORTABLE)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", EXPORTABLE)
def test_case(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if name in KNOWN:
        request.applymarker(pytest.mark.xfail(reason=KNOWN[name], strict=True))
    check(name, tmp_path)

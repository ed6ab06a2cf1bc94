"""Calibration data from files and generators, and all that may not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tpu_export.converters.litert.quantize import calibration_data
from tpu_export.converters.litert.quantize.errors import CalibrationError
from tpu_export.runtime.signature import Signature, TensorSpec

X = np.arange(6, dtype=np.float32).reshape(2, 3)
IDS = np.array([1, 2])


def signature(name: str = "forward") -> Signature:
    inputs = (TensorSpec("x", ("b", 3), "float32"), TensorSpec("i", (2,), "int64"))
    return Signature(name, (), inputs, (), ())


def read(text: Any, *names: str) -> dict[str, list[Any]]:
    signatures = {name: signature(name) for name in names or ("forward",)}
    return calibration_data(
        str(text), signatures, {name: {"b": 2} for name in signatures}
    )


def test_a_file_of_one_call_and_of_several(tmp_path: Path):
    np.savez(tmp_path / "one.npz", x=X.astype(np.float64), i=IDS.astype(np.int32))
    ((call,),) = read(tmp_path / "one.npz").values()
    assert call["x"].dtype == np.float32
    assert call["i"].dtype == np.int64
    np.savez(tmp_path / "more.npz", x=np.stack([X, X + 1]), i=np.stack([IDS, IDS]))
    calls = read(tmp_path / "more.npz")["forward"]
    assert len(calls) == 2
    assert np.array_equal(calls[1]["x"], X + 1)
    assert len(read(tmp_path)["forward"]) == 3


def test_at_most_512_calls(tmp_path: Path):
    np.savez(tmp_path / "x.npz", x=np.stack([X] * 600), i=np.stack([IDS] * 600))
    assert len(read(tmp_path)["forward"]) == 512


def test_folders_of_signatures(tmp_path: Path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        np.savez(tmp_path / name / "0.npz", x=X, i=IDS)
    assert {n: len(c) for n, c in read(tmp_path, "one", "two").items()} == {
        "one": 1,
        "two": 1,
    }
    with pytest.raises(CalibrationError, match="several signatures"):
        read(tmp_path / "one" / "0.npz", "one", "two")


@pytest.mark.parametrize(
    "body",
    [
        "def batches():\n    yield {'x': X, 'i': I}\n    yield X, I\n",
        "batches = [(X, I), {'x': X, 'i': I}]\n",
        "def batches(name):\n    assert name == 'forward'\n    return [(X, I)] * 2\n",
        "import torch\nbatches = [(torch.tensor(X), torch.tensor(I))] * 2\n",
    ],
)
def test_python(body: str, tmp_path: Path):
    head = "import numpy as np\nX = np.ones((2, 3), np.float32)\nI = np.array([1, 2])\n"
    path = tmp_path / "data.py"
    path.write_text(head + body)
    calls = read(f"{path}:batches")["forward"]
    assert len(calls) == 2
    assert all(np.array_equal(c["x"], np.ones((2, 3))) for c in calls)


WRONG = {
    "missing": ({"x": X}, "missing input 'i'"),
    "unknown": ({"x": X, "i": IDS, "z": X}, "unknown input 'z'"),
    "shape": ({"x": X[:1], "i": IDS}, "x has shape (1, 3), not (2, 3)"),
    "dtype": ({"x": X, "i": IDS.astype(np.float32)}, "i is float32, not int64"),
    "integers": ({"x": X.astype(np.int32), "i": IDS}, "x is int32, not float32"),
    "nan": ({"x": X * np.nan, "i": IDS}, "x has NaN"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_named(name: str, tmp_path: Path):
    arrays, words = WRONG[name]
    np.savez(tmp_path / "0.npz", x=X, i=IDS)
    np.savez(tmp_path / "1.npz", **arrays)
    with pytest.raises(CalibrationError) as info:
        read(tmp_path)
    assert info.value.message.startswith("call 1 does not fit 'forward': ")
    assert words in info.value.message
    assert info.value.hint == "its inputs are x: float32[2, 3], i: int64[2]"


def test_what_cannot_be_read(tmp_path: Path):
    (tmp_path / "bad.npz").write_bytes(b"no archive")
    (tmp_path / "data.py").write_text("def batches():\n    raise RuntimeError('no')\n")
    (tmp_path / "empty").mkdir()
    for text, words in (
        (tmp_path / "bad.npz", "bad.npz for 'forward' raised"),
        (tmp_path / "none.npz", "FileNotFoundError"),
        (tmp_path / "empty", "has no call"),
        (f"{tmp_path}/data.py:batches", "RuntimeError: no"),
        (f"{tmp_path}/data.py:other", "has no other"),
        (f"{tmp_path}/none.py:batches", "there is no file"),
    ):
        with pytest.raises(CalibrationError, match=words):
            read(text)

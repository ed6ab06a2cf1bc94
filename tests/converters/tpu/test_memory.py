from __future__ import annotations

import pickle

import pytest

from tpu_export.converters.tpu.memory import OutOfMemoryError, Value, hbm_sizes

G = 2**30

MESSAGES = [
    (
        "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the "
        "total memory required for HLO temporaries (54.77G) exceeds available HBM "
        "(15.75G). HLO module: jit_o.",
        (int(54.77 * G), int(15.75 * G)),
    ),
    (
        "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 512.0M of "
        "15.75G hbm. Exceeded hbm capacity by 1G.",
        (512 * 2**20, int(15.75 * G)),
    ),
    ("INVALID_ARGUMENT: No such compile option: 'xla_foo'", None),
]


@pytest.mark.parametrize(("message", "expected"), MESSAGES)
def test_sizes(message: str, expected: tuple[int, int] | None) -> None:
    assert hbm_sizes(message) == expected


def test_the_error_survives_process_borders() -> None:
    value = Value(9 * G, "<3x3xf32>", "net", "aten.mm.default", "m.py:1")
    error = OutOfMemoryError("v5e:1x1", 20 * G, 16 * G, (value,))
    for copy in (
        OutOfMemoryError.from_json(error.to_json()),
        pickle.loads(pickle.dumps(error)),
    ):
        assert str(copy) == str(error)
        assert copy.largest == (value,)
    assert "20.00 GiB" in error.message
    assert "aten.mm.default in net m.py:1" in error.hint

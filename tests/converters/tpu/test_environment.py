from __future__ import annotations

import pytest

from tpu_export.converters.tpu.environment import worker_environment


@pytest.mark.parametrize(
    "name",
    ["XLA_FLAGS", "LIBTPU_INIT_ARGS", "JAX_ENABLE_X64", "JAX_COMPILATION_CACHE_DIR"],
)
def test_nothing_ambient_leaks(name: str) -> None:
    assert name not in worker_environment({name: "garbage", "PATH": "/bin"})


def test_what_a_process_needs_stays() -> None:
    environment = worker_environment({"PATH": "/bin", "TMPDIR": "/t"})
    assert (environment["PATH"], environment["TMPDIR"]) == ("/bin", "/t")
    assert environment["JAX_PLATFORMS"] == "cpu"
    assert environment["ALLOW_MULTIPLE_LIBTPU_LOAD"] == "1"
    assert environment["PYTHONPATH"]

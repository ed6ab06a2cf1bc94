from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from tpu_export.runtime.archive import ArtifactCorruptedError
from tpu_export.runtime.executables import (
    CompileError,
    NoExecutableError,
    UnknownPolicyError,
)
from tpu_export.runtime.inputs import InputError
from tpu_export.runtime.manifest import Compiler, Manifest
from tpu_export.runtime.program import (
    ClosedError,
    Program,
    UnknownSignatureError,
    load,
)
from tpu_export.runtime.runner import MAX_SIZES
from tpu_export.runtime.signature import RNG
from tpu_export.runtime.weights import WeightUpdateError

Make = Callable[..., Path]
X23 = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(params=["compiled", "executable"])
def opened(request: pytest.FixtureRequest, artifact: Make) -> Iterator[Any]:
    """opened(name): the model's program, compiled here or from its CPU executable."""
    programs: list[Program] = []

    def open_(name: str) -> Program:
        if request.param == "compiled":
            program = load(artifact(name), device="cpu", executables="never")
        else:
            sizes = {"batch": 2} if name == "dynamic" else {}
            path = artifact(name, compiled=[sizes])
            program = load(path, device="cpu", executables="require")
            assert program.compilations == 0
        programs.append(program)
        return program

    yield open_
    for program in programs:
        program.close()


def test_arguments_may_be_positional_or_named(opened: Any) -> None:
    program = opened("add")
    x, y = np.ones((2, 3), np.float32), np.full((2, 3), 4, np.float32)
    for got in (program(x, y), program(y=y, x=x), program(x, y=y)):
        np.testing.assert_array_equal(got, x - y)
        assert type(got) is np.ndarray
    assert program.device == "cpu"


def test_jax_arrays_are_taken(opened: Any) -> None:
    np.testing.assert_array_equal(opened("add")(jax.numpy.asarray(X23), X23), X23 * 0)


def test_prepared_weights(opened: Any) -> None:
    weight = np.arange(12, dtype=np.float32).reshape(3, 4)
    want = X23 @ (2 * weight) + np.array([1, 2, 3, 4], np.float32)
    np.testing.assert_allclose(opened("linear")(X23), want)


def test_state_is_kept_read_assigned_and_reset(opened: Any) -> None:
    program = opened("counter")
    assert [int(program(n)) for n in (1, 2, 3)] == [6, 8, 11]
    assert int(program.state["count"]) == 11
    program.state["count"] = np.array(100, np.int32)
    assert int(program(1)) == 101
    program.reset_state()
    assert int(program(1)) == 6
    assert list(program.state) == ["count"]
    assert len(program.state) == 1


def test_state_that_is_read_or_assigned_is_a_copy(opened: Any) -> None:
    program = opened("random")
    mine = np.array([1, 2], np.uint32)
    program.state[RNG] = mine
    mine[:] = 9
    read = program.state[RNG]
    np.testing.assert_array_equal(read, [1, 2])
    read[:] = 7
    np.testing.assert_array_equal(program.state[RNG], [1, 2])


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("count", np.array(1, np.int64), "int32"),
        ("count", np.array([1], np.int32), r"int32\[1\]"),
        ("other", np.array(1, np.int32), "no state 'other'"),
    ],
)
def test_wrong_state_is_refused(
    name: str, value: Any, what: str, artifact: Make
) -> None:
    program = load(artifact("counter"), device="cpu")
    with pytest.raises(InputError, match=what):
        program.state[name] = value
    with pytest.raises(InputError):
        del program.state["count"]
    assert int(program(0)) == 5


def test_signatures_share_state(opened: Any) -> None:
    program = opened("two")
    assert set(program.signatures) == {"prefill", "decode"}
    assert int(program["prefill"](2)) == 7
    assert int(program["decode"](3)) == 21
    assert int(program["prefill"](1)) == 22
    assert program["decode"].signature.name == "decode"
    with pytest.raises(UnknownSignatureError, match="forward"):
        program(1)
    with pytest.raises(UnknownSignatureError) as caught:
        program["encode"]
    assert "decode, prefill" in caught.value.hint


def test_written_inputs(opened: Any) -> None:
    program = opened("mutating")
    x = np.array([1, 2, 3], np.float32)
    assert program(x) == 6
    np.testing.assert_array_equal(x, [2, 4, 6])
    strided = np.zeros(6, np.float32)[::2]
    strided[:] = 1
    program(strided)
    np.testing.assert_array_equal(strided, [2, 2, 2])


def test_an_input_that_cannot_be_written_is_refused(artifact: Make) -> None:
    program = load(artifact("mutating"), device="cpu")
    frozen = np.ones(3, np.float32)
    frozen.flags.writeable = False
    for value in (frozen, jax.numpy.ones(3), np.broadcast_to(np.float32(1), 3)):
        with pytest.raises(InputError, match="writes to 'x'"):
            program(value)


def test_results_share_no_memory(opened: Any) -> None:
    """Not with each other, the caller's arrays, the weights or the state."""
    program = opened("linear")
    first = program(X23)
    want = first.copy()
    first[...] = -1
    np.testing.assert_array_equal(program(X23), want)
    counter = opened("counter")
    total = counter(1)
    total[...] = 1000
    assert int(counter(0)) == 6
    mutating = opened("mutating")
    x = np.ones(1024 + 3, np.float32)[:3]
    result = mutating(x)
    assert not np.shares_memory(result, x)


def test_what_the_caller_writes_later_does_not_reach_state(artifact: Make) -> None:
    """A big aligned array is put without a copy; it must be done with when we return."""
    program = load(artifact("keep"), device="cpu")
    x = np.zeros(1 << 20, np.float32)
    for round_ in range(10):
        x[:] = round_
        program(x)
        x[:] = -1
        assert (program.state["kept"] == round_).all()


def aligned(count: int) -> np.ndarray:
    """Return float32 zeros at a multiple of 64 bytes: what XLA uses without a copy."""
    raw = np.zeros(count + 16, np.float32)
    start = -raw.ctypes.data % 64 // 4
    return raw[start : start + count]


def test_state_shares_no_memory_with_what_was_assigned(artifact: Make) -> None:
    program = load(artifact("keep"), device="cpu")
    mine = aligned(1 << 20)
    program.state["kept"] = mine
    mine[:] = 5
    assert (program.state["kept"] == 0).all()
    program(aligned(1 << 20))  # donates the state: it must not be mine, nor the file's
    assert (mine == 5).all()
    program.reset_state()
    program(mine)
    program.reset_state()
    assert (program.state["kept"] == 0).all()


def test_random_numbers_follow_the_seed(opened: Any) -> None:
    program = opened("random")
    x = np.zeros(3, np.float32)
    first, second = program(x), program(x)
    assert not np.array_equal(first, second)
    program.reset_state()
    np.testing.assert_array_equal(program(x), first)
    program.seed(2**40 + 3)
    np.testing.assert_array_equal(program.state[RNG], [2**8, 3])
    third = program(x)
    program.seed(2**40 + 3)
    np.testing.assert_array_equal(program(x), third)
    program.seed(-1)


def test_seeding_a_model_without_random_numbers_is_nothing(artifact: Make) -> None:
    load(artifact("add"), device="cpu").seed(1)


def test_dynamic_sizes(opened: Any) -> None:
    program = opened("dynamic")
    x = np.ones((2, 2), np.float32)
    np.testing.assert_array_equal(program(x), [2, 2])
    if program.compilations == 0:
        with pytest.raises(
            NoExecutableError, match="no executable for batch=3, but for batch=2"
        ):
            program(np.ones((3, 2), np.float32))
        return
    for n in (1, 3, 8, 3):
        assert program(np.ones((n, 2), np.float32)).shape == (n,)
    assert program.compilations == 4
    with pytest.raises(InputError, match="batch = 9 is outside 1 … 8"):
        program(np.ones((9, 2), np.float32))


def test_the_cache_of_sizes_is_bounded(
    artifact: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_SIZES >= 8
    monkeypatch.setattr("tpu_export.runtime.runner.MAX_SIZES", 2)
    program = load(artifact("dynamic"), device="cpu")
    for n, compilations in ((1, 1), (2, 2), (1, 2), (3, 3), (1, 3), (2, 4)):
        program(np.ones((n, 2), np.float32))
        assert program.compilations == compilations, n
    assert len(program._runners["forward"]._codes) == 2


def test_weights_lie_on_the_device_once_for_all_sizes(artifact: Make) -> None:
    program = load(artifact("scaled"), device="cpu")
    for n in (1, 2, 3):
        program(np.ones((n,), np.float32))
    assert len(program._runners["forward"]._leading) == 1


def test_stateless_calls_from_many_threads(opened: Any) -> None:
    program = opened("linear")
    inputs = [np.full((2, 3), i, np.float32) for i in range(64)]
    want = [program(x) for x in inputs]
    with ThreadPoolExecutor(8) as pool:
        for got, expected in zip(pool.map(program, inputs), want, strict=True):
            np.testing.assert_array_equal(got, expected)


def test_stateful_calls_from_many_threads_take_turns(opened: Any) -> None:
    program = opened("counter")
    with ThreadPoolExecutor(8) as pool:
        totals = sorted(int(t) for t in pool.map(lambda _: program(1), range(200)))
    assert totals == [*range(6, 206)]
    assert int(program.state["count"]) == 205


def test_many_threads_compile_a_size_once(artifact: Make) -> None:
    program = load(artifact("dynamic"), device="cpu")
    with ThreadPoolExecutor(8) as pool:
        sizes = [1 + i % 4 for i in range(32)]
        xs = [np.ones((n, 2), np.float32) for n in sizes]
        assert [len(y) for y in pool.map(program, xs)] == sizes
    assert program.compilations == 4


def test_new_weights(opened: Any) -> None:
    program = opened("linear")
    before = program.compilations
    zeros = np.zeros((3, 4), np.float32)
    program.update_weights({"weight": zeros})
    np.testing.assert_array_equal(program(X23), np.tile([1.0, 2, 3, 4], (2, 1)))
    bias = np.full(4, 7, np.float32)
    program.update_weights({"bias": bias})
    bias[:] = 0
    np.testing.assert_array_equal(program(X23), np.full((2, 4), 7))
    assert program.compilations == before
    assert set(program.weight_names) == {"weight", "bias"}


def test_wrong_new_weights_are_all_named_and_none_is_taken(artifact: Make) -> None:
    program = load(artifact("linear"), device="cpu")
    want = program(X23)
    with pytest.raises(WeightUpdateError) as caught:
        program.update_weights(
            {
                "bias": np.zeros(4, np.float32),
                "weight": np.zeros((4, 3), np.float32),
                "other": np.zeros(1),
            }
        )
    assert "weight is float32[4, 3], expected float32[3, 4]" in str(caught.value)
    assert "no weight 'other'" in str(caught.value)
    np.testing.assert_array_equal(program(X23), want)
    counter = load(artifact("counter"), device="cpu")
    with pytest.raises(WeightUpdateError, match="no weight 'count'"):
        counter.update_weights({"count": np.array(1, np.int32)})


def test_a_closed_program_says_so(artifact: Make) -> None:
    with load(artifact("counter"), device="cpu") as program:
        call = program["forward"]
        program(1)
    uses: tuple[Callable[[], Any], ...] = (
        lambda: program(1),
        lambda: call(1),
        lambda: program["forward"],
        lambda: program.state["count"],
        program.reset_state,
        lambda: program.seed(1),
        lambda: program.update_weights({}),
    )
    for use in uses:
        with pytest.raises(ClosedError):
            use()
    program.close()


ELSEWHERE: tuple[tuple[dict[str, Any], str], ...] = (
    ({"jaxlib": "0.0.1"}, "built by jaxlib 0.0.1"),
    ({"platform_version": "other"}, "built for 'other'"),
    ({"host_features": ("avx9", "sse2")}, "this CPU lacks avx9"),
)


@pytest.mark.parametrize(("change", "why"), ELSEWHERE)
def test_an_executable_from_elsewhere(
    change: dict[str, Any], why: str, artifact: Make
) -> None:
    def edit(manifest: Manifest) -> Manifest:
        (found,) = manifest.executables
        compiler: Compiler = replace(found.compiler, **change)
        return replace(manifest, executables=(replace(found, compiler=compiler),))

    path = artifact("add", compiled=[{}], edit=edit)
    program = load(path, device="cpu")
    np.testing.assert_array_equal(program(X23, X23), X23 * 0)
    assert program.compilations == 1
    assert program.origin["forward"].startswith("compiled from StableHLO: ")
    assert why in program.origin["forward"]
    with pytest.raises(NoExecutableError, match=why):
        load(path, device="cpu", executables="require")


def test_policies(artifact: Make) -> None:
    with_code, without = artifact("add", compiled=[{}]), artifact("add")
    auto = load(with_code, device="cpu")
    assert auto.origin == {"forward": "executable cpu/host"}
    assert auto.compilations == 0
    never = load(with_code, device="cpu", executables="never")
    assert "the caller asked for it" in never.origin["forward"]
    assert never.compilations == 1
    assert "holds no executable" in load(without, device="cpu").origin["forward"]
    with pytest.raises(NoExecutableError, match="holds no executable"):
        load(without, device="cpu", executables="require")
    wrong: Any = "required"
    with pytest.raises(UnknownPolicyError, match="'required'") as caught:
        load(without, device="cpu", executables=wrong)
    assert caught.value.hint == "executables is one of auto, never, require"


def with_other(path: Path, name: str, payload: bytes) -> Path:
    """Replace the bytes of an entry in place, hashes unchanged."""
    from tpu_export.runtime.artifact import Artifact

    member = Artifact(path)._members[name]
    data = bytearray(path.read_bytes())
    data[member.offset : member.offset + len(payload)] = payload
    changed = path.with_name("changed.tpuexe")
    changed.write_bytes(data)
    return changed


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("programs/forward.mlirbc", {"executables": "never"}),
        ("executables/cpu/host/forward.bin", {"executables": "auto"}),
        ("weights/model.safetensors", {"verify": "all"}),
    ],
)
def test_damage_is_found_before_use(
    name: str, options: dict[str, Any], artifact: Make
) -> None:
    path = with_other(artifact("add", compiled=[{}]), name, b"\xff\xff\xff")
    with pytest.raises(ArtifactCorruptedError, match=name):
        load(path, device="cpu", **options)


def test_a_program_that_is_no_stablehlo(artifact: Make) -> None:
    path = artifact("garbage")
    with pytest.raises(CompileError, match="cannot be compiled"):
        load(path, device="cpu")


def test_an_executable_that_cannot_be_loaded(artifact: Make) -> None:
    """Its hash is right, its bytes are none of this client's: compile instead."""
    program = load(artifact("no native"), device="cpu")
    assert "cannot be loaded" in program.origin["forward"]
    np.testing.assert_array_equal(program(X23, X23), X23 * 0)

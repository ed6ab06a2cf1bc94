from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tpu_export.runtime.artifact import Artifact
from tpu_export.runtime.inputs import IndexRangeError, InputError, bind_call, describe
from tpu_export.runtime.signature import Dim, Parameter, Signature, TensorSpec

PLAIN = Signature(
    name="forward",
    parameters=(
        Parameter("x", "positional", {"leaf": 0}),
        Parameter("scale", "positional", {"leaf": 1}),
        Parameter("mode", "keyword", {"const": "fast"}),
    ),
    inputs=(
        TensorSpec("x", ("batch", 3), "float32"),
        TensorSpec("scale", (), "float32"),
    ),
    outputs=(),
    output_tree={"const": None},
    dims=(Dim("batch", 1, 4),),
)
NESTED = Signature(
    name="forward",
    parameters=(
        Parameter(
            "cache",
            "positional",
            {
                "record": "Cache",
                "kind": "dataclass",
                "fields": [
                    ["keys", {"list": [{"leaf": 0}, {"leaf": 1}]}],
                    ["size", {"const": 2}],
                ],
            },
        ),
        Parameter("more", "keyword", {"dict": [["a", {"tuple": [{"leaf": 2}]}]]}),
    ),
    inputs=tuple(
        TensorSpec(name, (2,), "int32")
        for name in ("cache.keys.0", "cache.keys.1", "more.a.0")
    ),
    outputs=(),
    output_tree={"const": None},
)
X = np.ones((2, 3), np.float32)
I = np.ones(2, np.int32)  # noqa: E741


@dataclass
class Cache:
    keys: list[Any]
    size: int = 2


GOOD: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = (
    ((X, 2.0), {}),
    ((X,), {"scale": np.float32(2)}),
    ((), {"x": X, "scale": 2.0, "mode": "fast"}),
    ((X, np.array(2, np.float32), "fast"), {}),
    ((X[:, ::-1], 1.5), {}),
)


@pytest.mark.parametrize(("args", "kwargs"), GOOD)
def test_fits(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    call = bind_call(PLAIN, args, kwargs)
    assert [a.dtype.name for a in call.arrays] == ["float32", "float32"]
    assert call.dims == {"batch": 2}


@pytest.mark.parametrize(
    "value", [Cache([I, I]), {"keys": [I, I], "size": 2}, Cache((I, I))]
)
def test_nested_values_fit(value: Any) -> None:
    call = bind_call(NESTED, (value,), {"more": {"a": (I,)}})
    assert len(call.arrays) == 3


SPEC = {
    "float32": 1.5, "float64": 1.5, "bfloat16": 1.5, "float16": 1.5, "int8": -3,
    "uint16": 3, "bool": True, "complex64": 1j,
}  # fmt: skip


@pytest.mark.parametrize("dtype", SPEC)
def test_python_numbers_for_rank_0(dtype: str) -> None:
    spec = Signature(
        "f",
        (Parameter("n", "positional", {"leaf": 0}),),
        (TensorSpec("n", (), dtype),),
        (),
        {"const": None},
    )
    (array,) = bind_call(spec, (SPEC[dtype],), {}).arrays
    assert array.dtype.name == dtype
    assert array == np.asarray(SPEC[dtype]).astype(array.dtype)


class Stubborn:
    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("can't call numpy() on a tensor that requires grad")


WRONG: tuple[tuple[tuple[Any, ...], dict[str, Any], tuple[str, ...]], ...] = (
    ((), {}, ("missing argument 'x'", "missing argument 'scale'")),
    ((X,), {}, ("missing argument 'scale'",)),
    ((X, 1.0, "fast", 1), {}, ("4 arguments given, 3 expected",)),
    ((X, 1.0), {"y": 1}, ("unknown argument 'y'",)),
    ((X, 1.0), {"x": X}, ("argument 'x' given twice",)),
    ((X, 1.0, "slow"), {}, ("mode must be 'fast', as at export",)),
    ((X, 1), {}, ("scale has dtype int64, expected float32",)),
    ((X, True), {}, ("scale has dtype bool",)),
    ((X, None), {}, ("scale is None, expected an array float32[]",)),
    ((X.tolist(), 1.0), {}, ("x is a list, expected an array float32[batch, 3]",)),
    (({"x": X}, 1.0), {}, ("x is a dict",)),
    (("x", 1.0), {}, ("x is a str",)),
    (([[1.0], [1.0, 2.0]], 1.0), {}, ("x is a list",)),
    ((Stubborn(), 1.0), {}, ("x cannot become float32[batch, 3]: can't call numpy()",)),
    ((object(), 1.0), {}, ("x has dtype object",)),
    ((X.astype(">f4"), 1.0), {}, ("x has dtype >f4",)),
    ((X.astype(ml_dtypes.bfloat16), 1.0), {}, ("x has dtype bfloat16",)),
    ((X[0], 1.0), {}, ("x has shape [3], expected float32[batch, 3]",)),
    ((X[:, :2], 1.0), {}, ("x has size 2 in axis 1, expected 3",)),
    ((np.ones((5, 3), np.float32), 1.0), {}, ("dimension batch = 5 is outside 1 … 4",)),
    (
        (X[:, :2], 1),
        {"y": 1, "mode": "slow"},
        ("x has size 2", "scale has dtype", "unknown argument 'y'", "mode must be"),
    ),
)


@pytest.mark.parametrize(("args", "kwargs", "said"), WRONG)
def test_everything_wrong_is_said_at_once(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], said: tuple[str, ...]
) -> None:
    with pytest.raises(InputError) as caught:
        bind_call(PLAIN, args, kwargs)
    for words in said:
        assert words in caught.value.message
    assert caught.value.hint == (
        "the signature is forward(x: float32[batch, 3], scale: float32[])"
    )
    assert caught.value.code == "TPX-0505"


NESTED_WRONG: tuple[tuple[Any, Any, str], ...] = (
    (Cache([I]), {"a": (I,)}, "cache.keys must be a sequence of 2"),
    (Cache([I, I], 3), {"a": (I,)}, "cache.size must be 2, as at export"),
    ({"keys": [I, I]}, {"a": (I,)}, "cache lacks ['size']"),
    (Cache([I, I]), {"a": (I,), "b": 1}, "more has unknown ['b']"),
    (Cache([I, I]), {"b": (I,)}, "more lacks ['a'] and has unknown ['b']"),
    (Cache([I, I]), {"a": I}, "more.a must be a sequence of 1"),
    (Cache([I, "no"]), {"a": (I,)}, "cache.keys.1 is a str"),
    (3, {"a": (I,)}, "cache lacks ['keys', 'size']"),
)


@pytest.mark.parametrize(("cache", "more", "said"), NESTED_WRONG)
def test_wrong_structure_is_named_by_place(cache: Any, more: Any, said: str) -> None:
    with pytest.raises(InputError) as caught:
        bind_call(NESTED, (cache,), {"more": more})
    assert said in caught.value.message


def test_a_number_that_does_not_fit() -> None:
    spec = Signature(
        "f",
        (Parameter("n", "positional", {"leaf": 0}),),
        (TensorSpec("n", (), "int8"),),
        (),
        {"const": None},
    )
    with pytest.raises(InputError, match="n cannot become int8"):
        bind_call(spec, (300,), {})


def test_description() -> None:
    assert describe(PLAIN) == "forward(x: float32[batch, 3], scale: float32[])"


def test_constraints_between_sizes_and_numbers(artifact: Any) -> None:
    signature = Artifact(artifact("constrained")).manifest.programs["forward"].signature
    x = np.ones((2, 3), np.float32)
    assert bind_call(signature, (x, 3), {}).dims == {"rows": 2, "columns": 3}
    with pytest.raises(InputError) as info:
        bind_call(signature, (x.T, 2), {})
    said = "the model was captured for rows <= columns, given columns = 2, rows = 3"
    assert said in str(info.value)
    assert "the model was captured for n > 2, given n = 2" in str(info.value)


def test_ranges_of_indices(artifact: Any) -> None:
    signature = Artifact(artifact("ranged")).manifest.programs["forward"].signature
    x, y = np.array([-4, 0, 3]), np.array([0, 3], np.int32)
    bind_call(signature, (x, y), {})
    with pytest.raises(IndexRangeError) as info:
        bind_call(signature, (x - 1, y + 1), {})
    assert "x holds -5; table has 4 rows: -4 … 3" in str(info.value)
    assert "y holds 4; other has 4 rows: 0 … 3" in str(info.value)
    assert isinstance(info.value, InputError)
    with pytest.raises(IndexRangeError, match=f"x holds {2**63 - 1}"):
        bind_call(signature, (np.array([0, 2**63 - 1, 0]), y), {})

"""Narrowing keeps every value: claimed ranges hold, and programs compute what they did."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from tpu_export.converters.stablehlo.narrowing import Argument, Interval, narrow
from tpu_export.converters.stablehlo.narrowing.ranges import results_of
from tpu_export.converters.stablehlo.narrowing.sizes import Sizes
from tpu_export.runtime.expressions import evaluate
from tpu_export.runtime.signature import Dim

Function = Callable[..., Any]
# Where a range may begin or end: around the ends of 32 and 64 bits, and zero.
EDGES = sorted(
    {
        sign * 2**bits + near
        for bits in (0, 3, 16, 30, 31, 32, 33, 62)
        for sign in (-1, 1)
        for near in (-2, -1, 0, 1, 2)
    }
    | {-(2**63), -(2**63) + 1, 2**63 - 2, 2**63 - 1}
)
BINARY: dict[str, Function] = {
    "add": lax.add, "sub": lax.sub, "mul": lax.mul, "div": lax.div, "rem": lax.rem,
    "max": lax.max, "min": lax.min, "and": lax.bitwise_and, "or": lax.bitwise_or,
    "xor": lax.bitwise_xor, "shift_left": lax.shift_left, "ashr": lax.shift_right_arithmetic,
    "lshr": lax.shift_right_logical, "lt": lax.lt, "eq": lax.eq, "ge": lax.ge,
    "clamp": lambda x, y: lax.clamp(jnp.int64(-3), x, y),
    "select": lambda x, y: lax.select(x < y, x, y),
    "concatenate": lambda x, y: lax.concatenate([x, y], 0),
    "pad": lambda x, y: lax.pad(x, y[0], [(1, 2, 1)]),
    "dot": lambda x, y: lax.dot_general(x, y, (((0,), (0,)), ((), ())),
        preferred_element_type=x.dtype),
    "floor_divide": lambda x, y: jnp.floor_divide(x, y),
    "remainder": lambda x, y: jnp.remainder(x, y),
    "update": lambda x, y: lax.dynamic_update_slice(x, y[:2], (y[0],)),
    "scatter": lambda x, y: x.at[jnp.array([0, 2])].set(y[:2]),
    "scatter_add": lambda x, y: x.at[jnp.array([0, 2, 0])].add(y[:3]),
    "sort": lambda x, y: lax.sort((x, y), num_keys=2)[1],
    "barrier": lambda x, y: lax.optimization_barrier((x, y))[0],
}  # fmt: skip
UNARY: dict[str, Function] = {
    "neg": lax.neg, "abs": lax.abs, "sign": lax.sign, "not": lax.bitwise_not,
    "square": lax.square, "cube": lambda x: lax.integer_pow(x, 3),
    "fourth": lambda x: lax.integer_pow(x, 4), "sum": lambda x: jnp.sum(x),
    "max": lambda x: jnp.max(x), "min": lambda x: jnp.min(x), "prod": lambda x: jnp.prod(x),
    "cumsum": lambda x: lax.cumsum(x), "cummax": lambda x: lax.cummax(x),
    "back": lambda x: lax.cumsum(x, reverse=True), "argmax": lambda x: jnp.argmax(x),
    "argmin": lambda x: lax.argmin(x, 0, jnp.int64), "count": lax.population_count, "clz": lax.clz,
    "int32": lambda x: x.astype(jnp.int32).astype(jnp.int64),
    "uint8": lambda x: x.astype(jnp.uint8),
    "uint32": lambda x: x.astype(jnp.uint32).astype(jnp.int64),
    "uint64": lambda x: x.astype(jnp.uint64), "bool": lambda x: x.astype(bool),
    "float": lambda x: x.astype(jnp.float32),
    "round": lambda x: x.astype(jnp.float32).astype(jnp.int64),
    "gather": lambda x: (x + 1)[jnp.array([3, -1])],
    "fill": lambda x: (x + 1).at[jnp.array([9, 1])].get(mode="fill"),
    "fill_0": lambda x: (x + 1).at[jnp.array([9, 1])].get(mode="fill", fill_value=0),
    "top": lambda x: lax.top_k(x, 3)[0], "places": lambda x: lax.top_k(x, 3)[1],
    "slice": lambda x: lax.dynamic_slice(x + 1, (x[0],), (2,)),
    "outer": lambda x: x[:, None] == jnp.arange(5),
    "flip": lambda x: (x + 1)[::-1].reshape(-1, 1).T,
    "log": lambda x: jnp.sort(x)[:2], "iota": lambda x: jnp.arange(9, dtype=jnp.int64) + x[0],
}  # fmt: skip


def members(values: Interval, rng: random.Random, count: int = 6) -> np.ndarray:
    drawn = [rng.randint(values.low, values.high) for _ in range(count - 2)]
    found = [values.low, *drawn, values.high]
    rng.shuffle(found)
    return np.array(found, np.int64)


def interval(rng: random.Random) -> Interval:
    low = rng.choice(EDGES)
    high = rng.choice([e for e in EDGES if e >= low])
    return Interval(low, high)


def traced(function: Function, *arrays: Any) -> ClosedJaxpr:
    with jax.enable_x64(True):
        return jax.make_jaxpr(function)(*arrays)


def run(closed: ClosedJaxpr, *arrays: Any) -> list[np.ndarray]:
    with jax.enable_x64(True):
        return [np.asarray(y) for y in jaxpr_as_fun(closed)(*arrays)]


def narrowed(
    function: Function,
    arrays: Sequence[Any],
    known: Sequence[Interval | None],
    dims: Sequence[Dim] = (),
) -> tuple[ClosedJaxpr, Any]:
    """Narrow a function and check that it computes what it did."""
    closed = traced(function, *arrays)
    arguments = [Argument(f"input {i}", k) for i, k in enumerate(known)]
    new, rows = narrow(closed, arguments, dims)
    assert [v.aval.dtype for v in new.jaxpr.invars] == [
        np.asarray(a).dtype for a in arrays
    ]
    for mine, theirs in zip(run(new, *arrays), run(closed, *arrays), strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)
    return new, rows


@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str) -> None:
    rng = random.Random(name)
    for _ in range(25):
        known = [interval(rng), interval(rng)]
        if name in ("shift_left", "ashr", "lshr") and rng.random() < 0.7:
            known[1] = Interval(0, rng.choice([0, 5, 31, 32, 63, 70]))
        narrowed(BINARY[name], [members(k, rng) for k in known], known)


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    rng = random.Random(name)
    for _ in range(25):
        known = interval(rng)
        narrowed(UNARY[name], [members(known, rng)], [known])


@pytest.mark.parametrize("seed", range(40))
def test_chains_of_operations(seed: int) -> None:
    """Any program of these: what wraps in 64 bits wraps as it did."""
    rng = random.Random(seed)
    known = [interval(rng), interval(rng), Interval(0, 99), Interval(-7, 2**31)]
    steps = [
        (rng.choice([*BINARY]), rng.randrange(9), rng.randrange(9)) for _ in range(8)
    ]

    def program(*arrays: Any) -> list[Any]:
        made = [*arrays]
        for name, i, j in steps:
            x, y = made[i % len(made)], made[j % len(made)]
            z = BINARY[name](x, y).reshape(-1).astype(jnp.int64)
            made.append(jnp.resize(z, (6,)))
        return made[4:]

    narrowed(program, [members(k, rng) for k in known], known)


@pytest.mark.parametrize("name", [*BINARY, *UNARY])
def test_claimed_ranges_hold(name: str) -> None:
    rng = random.Random(name)
    function, n = (BINARY[name], 2) if name in BINARY else (UNARY[name], 1)
    for _ in range(25):
        known = [interval(rng) for _ in range(n)]
        arrays = [members(k, rng) for k in known]
        closed = traced(function, *arrays)
        if len(closed.jaxpr.eqns) != 1 or closed.jaxpr.eqns[0].primitive.name == "jit":
            continue  # several operations: the chains above
        (eqn,) = closed.jaxpr.eqns
        claims = dict(zip(eqn.outvars, results_of(eqn, known, Sizes(())), strict=True))
        claimed = claims[closed.jaxpr.outvars[0]]
        for value in run(closed, *arrays)[0].reshape(-1):
            assert claimed is None or int(value) in claimed


@pytest.mark.parametrize(
    ("top", "narrow"), [(2**31 - 1, True), (2**31, False), (2**31 - 3, True)]
)
def test_the_last_value_that_fits(top: int, narrow: bool) -> None:
    known = Interval(-(2**31) + 1, top - 1)
    _, rows = narrowed(lambda x: x + 1, [np.array([top - 1, 4])], [known])
    assert [row.narrowed for row in rows if row.operation == "add"] == [narrow]


def test_a_hash_stays_in_64_bits() -> None:
    x = np.array([0, 5, 2**40, -1, 2**63 - 1])
    _, rows = narrowed(lambda x: x * 2654435761 % 2**32, [x], [None])
    reasons = {row.reason for row in rows if not row.narrowed}
    assert reasons >= {"input 0 can be any number"}
    assert "mul" in {row.operation for row in rows if not row.narrowed}
    narrowed(lambda x: x * 2654435761 % 2**32, [x[:2]], [Interval(0, 99)])


def test_index_arithmetic_is_32_bits() -> None:
    ids = np.array([[3, 99, 0]])

    def program(ids: Any) -> Any:
        places = jnp.arange(3, dtype=jnp.int64)
        return (places + ids) // 3, jnp.cumsum(ids, 1), places[None] <= ids

    new, rows = narrowed(program, [ids], [Interval(0, 99)])
    assert all(row.narrowed for row in rows)
    made = [v.aval.dtype for eqn in new.jaxpr.eqns for v in eqn.outvars]
    assert made.count(np.dtype(np.int64)) == 2  # the two results, widened at the end
    assert "div" in {eqn.primitive.name for eqn in new.jaxpr.eqns}


def loop(x: Any) -> Any:
    return lax.while_loop(
        lambda c: c[0] < 40, lambda c: (c[0] + 1, c[1] * 3 + x[0]), (jnp.int64(0), x)
    )


def turns(x: Any) -> Any:
    return lax.scan(lambda c, y: (c * 5 + y, y % 7), x[0], x)


def counted(x: Any) -> Any:
    return lax.fori_loop(0, 50, lambda i, c: c * 7 + i, x)


def branch(x: Any) -> Any:
    y = lax.cond(x[0] > 3, lambda y: y % 5, lambda y: y // 7, x)
    return y * 2, lax.cond(x[1] > 3, lambda y: y, lambda y: jnp.arange(6), y)


@pytest.mark.parametrize("program", [loop, turns, counted, branch])
@pytest.mark.parametrize("known", [Interval(0, 9), Interval(0, 2**31 - 1), None])
def test_control_flow(program: Function, known: Interval | None) -> None:
    x = members(known or Interval(-(2**63), 2**63 - 1), random.Random(0))
    narrowed(program, [x], [known])


@pytest.mark.parametrize("maximum", [9, 2**31, 2**31 + 1, None])
def test_symbolic_sizes(maximum: int | None) -> None:
    """Places in a dimension fit as long as the dimension does."""
    dim = Dim("n", 1, maximum)
    (n,) = jax.export.symbolic_shape(
        "n", constraints=[f"n <= {maximum}"] if maximum else []
    )
    shape = jax.ShapeDtypeStruct((n,), jnp.float32)
    closed = traced(lambda x: lax.iota(jnp.int64, x.shape[0]), shape)
    _, rows = narrow(closed, [Argument("input x")], [dim])
    (row,) = rows
    assert row.narrowed == (maximum is not None and maximum <= 2**31)
    if maximum is None:
        assert row.reason == "dimension n has no maximum"


@pytest.mark.parametrize(
    "text",
    [
        "2*n + m",
        "floordiv(n, 2)*m",
        "max(n, 7) - m",
        "mod(n, m)",
        "-n + 20*m",
        "floordiv(9*n, m)",
    ],
)
def test_bounds_of_expressions(text: str) -> None:
    (size,) = jax.export.symbolic_shape(text)
    found = Sizes([Dim("n", 3, 11), Dim("m", 2, 5)])(size)
    for n, m in itertools.product(range(3, 12), range(2, 6)):
        assert max(evaluate(text, {"n": n, "m": m}), 0) in found


def test_a_program_without_integers_is_as_it_was() -> None:
    closed = traced(lambda x: x * 2, np.ones(3, np.float32))
    new, rows = narrow(closed, [Argument("input x")], ())
    assert str(new) == str(closed)
    assert rows == ()


def test_it_is_idempotent() -> None:
    closed = traced(lambda x: (jnp.arange(4) + x) // 3, np.arange(4))
    once, _ = narrow(closed, [Argument("input x", Interval(0, 9))], ())
    twice, _ = narrow(once, [Argument("input x", Interval(0, 9))], ())
    assert str(once) == str(twice)

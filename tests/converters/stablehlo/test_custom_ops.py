"""Ops of the user's own, with rules of the user's own (docs/custom-ops.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import pytest
import torch
from torch import nn

import tpu_export
from tpu_export.converters.stablehlo.coverage import UnsupportedOpsError
from tpu_export.converters.stablehlo.custom import RegistrationError, forget
from tpu_export.converters.stablehlo.errors import UnsupportedOptionError
from tpu_export.converters.stablehlo.refusals import RuleFailedError
from tpu_export.converters.stablehlo.registry import (
    OWN,
    find_own,
    find_rule,
    find_variants,
)
from tpu_export.converters.stablehlo.results import LoweringBugError
from tpu_export.exporter.capture import capture

aten = torch.ops.aten


class Fn(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


@torch.library.custom_op("tpx_custom::cube", mutates_args=())
def cube(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    return scale * x**3


@cube.register_fake
def _(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    return torch.empty_like(x)


CUBE = torch.ops.tpx_custom.cube.default


@pytest.fixture(autouse=True)
def _no_rules_left() -> Iterator[None]:
    before = dict(OWN)
    yield
    OWN.clear()
    OWN.update(before)


@pytest.mark.parametrize("name", [CUBE, cube], ids=["overload", "custom_op"])
def test_a_rule_is_used(check_module: Any, name: Any) -> None:
    @tpu_export.lowers(name)
    def rule(x: Any, scale: float = 1.0) -> Any:
        return scale * x**3

    check_module(Fn(lambda x: cube(x, 2.0)), (torch.randn(3, 4),))


def test_a_rule_of_the_user_wins_over_ours() -> None:
    ours = find_rule(aten.silu.default, "xla")

    @tpu_export.lowers(aten.silu.default)
    def rule(x: Any) -> Any:
        return x

    @tpu_export.lowers(aten.silu.default, target="litert")
    def other(x: Any) -> Any:
        return x

    assert find_rule(aten.silu.default, "xla") is rule is not ours
    assert find_rule(aten.silu.default, "litert") is other
    forget(__name__)
    assert find_rule(aten.silu.default, "xla") is ours


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "a packet": (
        lambda: tpu_export.lowers(torch.ops.tpx_custom.cube),  # type: ignore[arg-type]
        "write torch.ops.tpx_custom.cube.default",
    ),
    "a name": (
        lambda: tpu_export.lowers("tpx_custom::cube"),  # type: ignore[arg-type]
        "takes an overload, not 'tpx_custom::cube'",
    ),
    "nothing": (lambda: tpu_export.lowers(), "names no op"),
    "no function": (lambda: tpu_export.lowers(CUBE)(3), "is an int"),  # type: ignore[type-var]
    "a target": (
        lambda: tpu_export.lowers(CUBE, target="tpu"),  # type: ignore[arg-type]
        'targets are "xla"',
    ),
    "a platform": (
        lambda: tpu_export.lowers(CUBE, platform="gpu"),  # type: ignore[arg-type]
        'platforms are "tpu" and "cpu"',
    ),
    "a platform of LiteRT": (
        lambda: tpu_export.lowers(CUBE, target="litert", platform="tpu"),
        "a .tflite has one program",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_registered_is_refused(name: str) -> None:
    register, words = WRONG[name]
    with pytest.raises(RegistrationError, match="TPX-0207") as caught:
        register()
    assert words in str(caught.value)


def test_a_second_rule_is_refused() -> None:
    @tpu_export.lowers(CUBE)
    def first(x: Any, scale: float = 1.0) -> Any:
        return x

    with pytest.raises(
        RegistrationError, match=r"first at test_custom_ops\.py:\d+"
    ) as caught:

        @tpu_export.lowers(CUBE)
        def second(x: Any, scale: float = 1.0) -> Any:
            return x

    assert "second at test_custom_ops.py:" in caught.value.hint
    assert find_rule(CUBE, "xla") is first


def test_the_same_definition_may_run_again() -> None:
    for _ in range(2):
        tpu_export.lowers(CUBE)(jnp.tanh)
    source = "import tpu_export\ntpu_export.lowers(op)(lambda x, scale=1.0: x)\n"
    for text in (source, "\n" + source):  # edited, and loaded again
        exec(
            compile(text, "model.py", "exec"),
            {"__name__": "model", "op": aten.erfc.default},
        )


def lowered(function: Callable[..., Any], *args: torch.Tensor, **options: Any) -> Any:
    return capture(Fn(function), args, **options).lower()


FAULTS: dict[str, tuple[Callable[..., Any], str]] = {
    "shape": (lambda x, scale: x[0], r"gave float32\[3\] where torch has float32\[2, 3\]"),
    "dtype": (lambda x, scale: x > 0, r"gave bool\[2, 3\] where"),
    "a number": (lambda x, scale: 1.0, "gave a float where"),
    "nothing": (lambda x, scale: None, "gave None where"),
    "several": (lambda x, scale: (x, x), "gave a tuple where"),
}  # fmt: skip


@pytest.mark.parametrize("platform", [None, "tpu"])
@pytest.mark.parametrize("name", FAULTS)
def test_a_rule_that_gives_another_thing_is_named(name: str, platform: Any) -> None:
    rule, words = FAULTS[name]
    tpu_export.lowers(CUBE)(lambda x, scale: x)
    forget(__name__) if platform is None else None
    tpu_export.lowers(CUBE, platform=platform)(rule)
    with pytest.raises(LoweringBugError, match=words) as caught:
        lowered(lambda x: cube(x, 2.0), torch.randn(2, 3))
    assert "your rule for tpx_custom.cube.default (<lambda> at test_cu" in str(caught)
    assert ", at the root (test_custom_ops.py:" in caught.value.message
    assert caught.value.hint.startswith("correct <lambda> at test_custom_ops.py:")


def test_a_rule_is_of_the_op_not_of_torchs_object(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tpu_export.lowers(CUBE)(lambda x, scale: x)
    tpu_export.lowers(CUBE, platform="tpu")(lambda x, scale: x)
    monkeypatch.delattr(
        torch.ops.tpx_custom, "cube"
    )  # as torch does when an old Library is freed
    again = torch.ops.tpx_custom.cube.default
    assert again is not CUBE
    assert find_own(again, "xla") is not None
    assert list(find_variants(again, "xla")) == ["tpu"]


@torch.library.custom_op("tpx_custom::halves", mutates_args=())
def halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x[:1].clone(), x[1:].clone()


halves.register_fake(lambda x: (x.new_empty(x[:1].shape), x.new_empty(x[1:].shape)))


def test_the_number_of_results_is_checked() -> None:
    tpu_export.lowers(halves)(lambda x: [x[:1]])
    with pytest.raises(LoweringBugError, match="gave 1 result where torch has 2"):
        lowered(lambda x: halves(x), torch.randn(2, 3))


def test_a_rule_with_several_results(check_module: Any) -> None:
    tpu_export.lowers(halves)(lambda x: [x[:1], x[1:]])
    check_module(Fn(lambda x: halves(x)), (torch.randn(2, 3),))


@pytest.mark.parametrize("platform", [None, "tpu"])
def test_a_rule_that_raises_is_named(platform: Any) -> None:
    def rule(x: Any, scale: float = 1.0) -> Any:
        return {}["key"]

    if platform:
        tpu_export.lowers(CUBE)(lambda x, scale: x)
    tpu_export.lowers(CUBE, platform=platform)(rule)
    with pytest.raises(RuleFailedError) as caught:
        lowered(lambda x: cube(x, 2.0), torch.randn(2, 3))
    line = rule.__code__.co_firstlineno
    words = (
        f"raised in line {line + 1} KeyError: 'key', at the root (test_custom_ops.py:"
    )
    assert words in caught.value.message
    assert f"(rule at test_custom_ops.py:{line + 5})" in caught.value.message


def test_a_rule_is_traced_as_jax_is_by_default(check_module: Any) -> None:
    @tpu_export.lowers(CUBE)
    def rule(x: Any, scale: float = 1.0) -> Any:
        return x * x * x + jnp.zeros(x.shape)  # of float64, were x64 on

    check_module(Fn(lambda x: cube(x)), (torch.randn(3, 4),))
    check_module(Fn(lambda x: cube(x)), (torch.randn(3, 4, dtype=torch.float64),))


def test_a_rule_of_a_dynamic_size(check_module: Any) -> None:
    @tpu_export.lowers(CUBE)
    def rule(x: Any, scale: float = 1.0) -> Any:
        last = jnp.arange(x.shape[0]) == x.shape[0] - 1
        return x * x * x * (x.shape[0] / x.shape[0]) + 0 * last[:, None]

    check_module(
        Fn(lambda x: cube(x)),
        (torch.randn(3, 4),),
        more=[(torch.randn(5, 4),)],
        dynamic_shapes=(({0: torch.export.Dim("rows")},),),
    )


@pytest.mark.parametrize("platform", [None, "tpu"])
def test_a_fixed_size_for_a_dynamic_one_is_wrong(platform: Any) -> None:
    tpu_export.lowers(CUBE)(lambda x, scale: x)
    forget(__name__) if platform is None else None
    fixed = tpu_export.lowers(CUBE, platform=platform)
    fixed(lambda x, scale: jnp.zeros((3, x.shape[1]), x.dtype))
    dynamic = (({0: torch.export.Dim("rows")},),)
    words = r"your rule for .* gave float32\[3, 4\] where torch has float32\[s\d+, 4\]"
    with pytest.raises(LoweringBugError, match=words):
        lowered(lambda x: cube(x, 2.0), torch.randn(3, 4), dynamic_shapes=dynamic)


@torch.library.custom_op("tpx_custom::push", mutates_args={"cache"})
def push(cache: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    cache[:-1] = cache[1:].clone()
    cache[-1] = x
    return cache.sum(0)


push.register_fake(lambda cache, x: torch.empty_like(x))


@torch.library.custom_op("tpx_custom::bump", mutates_args={"x"})
def bump(x: torch.Tensor, by: float, *, times: int = 1) -> None:
    x += by * times


class Cache(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(3, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.cat([x * 2, x]).view(2, 4)
        bump(y[0], 1.5)
        bump(y[:, 1:3], 2.0)
        bump(y.t(), 1.0, times=2)
        return push(self.cache, x) + y


def push_rule(cache: Any, x: Any) -> Any:
    cache = jnp.concatenate([cache[1:], x[None]])
    return cache.sum(0), cache


def bump_rule(x: Any, by: float, *, times: int) -> Any:
    return x + by * times


def test_a_rule_of_an_op_that_writes(check_module: Any) -> None:
    tpu_export.lowers(push)(push_rule)
    tpu_export.lowers(bump)(bump_rule)
    module = Cache()
    lowered = check_module(module, (torch.randn(4),), calls=3)
    assert [slot.name for slot in lowered.program.signature.state] == ["cache"]


def test_a_rule_of_an_op_that_writes_gives_new_values_too() -> None:
    tpu_export.lowers(bump)(bump_rule)
    with pytest.raises(UnsupportedOpsError, match=r"tpx_custom.push.default x1 at "):
        lowered_cache()
    tpu_export.lowers(push)(lambda cache, x: cache.sum(0))
    with pytest.raises(RuleFailedError, match="1 result and writes to cache: give "):
        lowered_cache()
    forget(__name__)
    tpu_export.lowers(push)(push_rule)
    tpu_export.lowers(bump)(lambda x, by, *, times: x[0])
    with pytest.raises((LoweringBugError, RuleFailedError), match="your rule for"):
        lowered_cache()


def lowered_cache() -> Any:
    return capture(Cache(), (torch.randn(4),)).lower()


@torch.library.custom_op("tpx_custom::bump_all", mutates_args={"xs"})
def bump_all(xs: list[torch.Tensor]) -> None:
    for x in xs:
        x += 1


def test_writing_to_a_list_is_refused() -> None:
    tpu_export.lowers(bump_all)(lambda xs: xs)

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        bump_all([y])
        return y

    with pytest.raises(
        UnsupportedOptionError, match=r"list of tensors 'xs', at the root \(test_cu"
    ):
        lowered(function, torch.randn(2, 3))


def test_writing_to_a_view_of_dynamic_size_is_refused() -> None:
    tpu_export.lowers(bump)(bump_rule)

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        bump(y.t(), 1.0)
        return y

    sizes = (({0: torch.export.Dim("rows")},),)
    with pytest.raises(UnsupportedOptionError, match="a view of a tensor with gaps or"):
        lowered(function, torch.randn(4, 3), dynamic_shapes=sizes)


@pytest.mark.parametrize("several", [False, True])
def test_a_rule_that_returns_a_torch_tensor_is_told_so(several: bool) -> None:
    tpu_export.lowers(CUBE)(
        lambda x, scale: [torch.ones(2, 3)] if several else torch.ones(2, 3)
    )
    with pytest.raises(LoweringBugError, match=r"returned a torch\.Tensor") as caught:
        lowered(lambda x: cube(x, 2.0), torch.randn(2, 3))
    assert "JAX arrays" in caught.value.hint

from __future__ import annotations

import gc
import time
from collections.abc import Iterator

import pytest

from tpu_export.converters.tpu.hlo import Cost, hlo_costs

GOLDEN = """HloModule jit_call, is_scheduled=true

%fused (p: f32[8,128]) -> f32[8,128] {
  %p = f32[8,128]{1,0:T(8,128)} parameter(0)
  ROOT %inner = f32[8,128]{1,0} negate(%p), backend_config={"estimated_cycles":"999"}
}

%body (s: (s32[], f32[8,128])) -> (s32[], f32[8,128]) {
  %s = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) parameter(0)
  %x = f32[8,128]{1,0:T(8,128)S(1)} fusion(%s), kind=kLoop, calls=%fused, \
metadata={op_name="a/while/body/dot"}, backend_config={"estimated_cycles":"10"}
  ROOT %t = (s32[], f32[8,128]) tuple(%s, %x)
}

%condition (s.1: (s32[], f32[8,128])) -> pred[] {
  %s.1 = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) parameter(0)
  %bound = s32[]{:T(128)} constant(12)
  ROOT %lt = pred[]{:T(512)} compare(%s.1, %bound), direction=LT
}

%dynamic (s.2: (s32[], f32[8,128])) -> pred[] {
  %s.2 = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) parameter(0)
  ROOT %lt.1 = pred[]{:T(512)} compare(%s.2, %s.2), direction=LT
}

%cheap (a: f32[8,128]) -> f32[8,128] {
  ROOT %c = f32[8,128]{1,0} copy(%a), backend_config={"estimated_cycles":"1"}
}

%dear (b: f32[8,128]) -> f32[8,128] {
  ROOT %d = f32[8,128]{1,0} copy(%b), metadata={op_name="dear \\"q\\""}, \
backend_config={"estimated_cycles":"700"}
}

%never (n: f32[8,128]) -> f32[8,128] {
  ROOT %e = f32[8,128]{1,0} copy(%n), backend_config={"estimated_cycles":"5000"}
}

ENTRY %main (x: f32[8,128], w: bf16[4,256]) -> f32[8,128] {
  %x = f32[8,128]{1,0:T(8,128)} parameter(0)
  %w = bf16[4,256]{1,0:T(8,128)(2,1)} parameter(1)
  %copy = f32[8,128]{1,0:T(8,128)} copy(%x), backend_config={"estimated_cycles":"100"}
  %loop = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) while(%copy), \
condition=%condition, body=%body
  %loop.2 = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) while(%copy), \
condition=%dynamic, body=%body
  %if = f32[8,128]{1,0} conditional(%p, %x, %x), branch_computations={%cheap, %dear}
  %buffer = f32[8,128]{1,0} custom-call(), custom_call_target="AllocateBuffer"
  %split = u32[8,128]{1,0} custom-call(%x), custom_call_target="X64SplitLow"
  %kernel = f32[8,128]{1,0} custom-call(%x, %w), \
custom_call_target="tpu_custom_call", metadata={op_name="k"}
  ROOT %sorted = f32[8,128]{1,0} sort(%kernel), dimensions={1}, to_apply=%cheap
}
"""


def test_golden_text() -> None:
    costs = hlo_costs(GOLDEN, bytes_per_cycle=1024.0)
    assert costs.unknown_loops == 1
    assert set(costs.instructions) == {
        Cost("a/while/body/dot", 10.0 * 13, "compiler", "fusion"),  # 12 times, and once
        Cost('dear \\"q\\"', 700.0, "compiler", "copy"),
        Cost("", 100.0, "compiler", "copy"),
        Cost("k", (4096 + 4096 + 2048) / 1024, "roofline", "tpu_custom_call"),
        Cost("", (4096 + 4096) / 1024, "roofline", "sort"),
    }


@pytest.mark.parametrize(
    "text", ["", "HloModule m\n", "%f (x: f32[]) -> f32[] {\n", "}{\n"]
)
def test_odd_texts_have_no_cost(text: str) -> None:
    assert hlo_costs(text, bytes_per_cycle=1.0).instructions == ()


@pytest.fixture
def no_collections() -> Iterator[None]:
    """Keep the garbage of all earlier tests out of what is timed."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collections")
def test_reading_takes_linear_time() -> None:
    line = (
        '  %c.{0} = f32[8,128]{{1,0}} fusion(%c.{1}), metadata={{op_name="a/b"}}, '
        'backend_config={{"estimated_cycles":"3"}}\n'
    )

    def seconds(count: int) -> float:
        body = "".join(line.format(n + 1, n) for n in range(count))
        text = f"ENTRY %main (x: f32[8,128]) -> f32[8,128] {{\n{body}}}\n"
        start = time.process_time()
        assert len(hlo_costs(text, bytes_per_cycle=1.0).instructions) == count
        return time.process_time() - start

    # Linear is 32 times as long, quadratic 1024 times; a busy machine blurs both.
    few, many = (min(seconds(n) for _ in range(3)) for n in (1_000, 32_000))
    assert many < 250 * few

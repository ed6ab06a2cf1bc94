"""What a program takes, returns and keeps: plain data, shared by every stage.

No torch, no jax: dtypes are numpy/ml_dtypes names ("float32", "bfloat16", "int64", "bool"),
a dimension is an int or an expression in dimension names ("batch", "2*seq + 1").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

DimSize: TypeAlias = int | str
Shape: TypeAlias = tuple[DimSize, ...]

# The state slot of the random seed. No path of a torch module begins with a dot.
RNG = ".rng"


@dataclass(frozen=True)
class Dim:
    """A dynamic dimension: minimum <= size <= maximum (None: unbounded)."""

    name: str
    minimum: int = 1
    maximum: int | None = None


def sizes_text(sizes: Mapping[str, int]) -> str:
    """Return "batch=8 seq=128"."""
    return " ".join(f"{name}={size}" for name, size in sizes.items())


@dataclass(frozen=True)
class TensorSpec:
    """A named tensor of a signature."""

    name: str
    shape: Shape
    dtype: str


# A tree is JSON-able structure around numbered leaves (indices into a flat list):
#   {"leaf": 3}  {"const": 5}  {"const": None}
#   {"list": [tree, …]}  {"tuple": [tree, …]}
#   {"dict": [[key, tree], …]}
#   {"record": "ClassName", "kind": "dataclass"|"namedtuple"|"mapping",
#    "fields": [[name, tree], …]}
Tree: TypeAlias = dict[str, object]


@dataclass(frozen=True)
class Parameter:
    """A parameter of forward(): its name, how it is passed, and its structure."""

    name: str
    kind: Literal["positional", "keyword"]
    tree: Tree


@dataclass(frozen=True)
class InputRange:
    """What an input's values must be, as the model refuses others: low <= value <= high.

    Attributes:
        name: of the input, whose values are whole numbers.
        because: what says so: "embed.weight has 30522 rows".
    """

    name: str
    low: int
    high: int
    because: str


@dataclass(frozen=True)
class Signature:
    """One named entry point of a program.

    Attributes:
        name: "forward" unless the user named several.
        parameters: forward()'s parameters in order; their leaves index `inputs`.
        inputs: flat user tensors, in leaf order. Nested names are dotted: "cache.0.key".
        outputs: flat result tensors, in leaf order.
        output_tree: structure of the result; its leaves index `outputs`.
        state: mutated buffers by FQN (and RNG when random ops draw from the seed).
        mutated_inputs: names of the inputs that forward() writes to.
        dims: the dynamic dimensions that shapes mention.
        constraints: what a call must satisfy besides their ranges, such as "q <= kv", in
            names of dims and of whole-number inputs.
        ranges: of inputs that the model uses as indices, each input at most once.
        counted: dimensions of results that the data decides, such as how many places a
            mask selects; shapes of inputs and state mention none.
    """

    name: str
    parameters: tuple[Parameter, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    output_tree: Tree
    state: tuple[TensorSpec, ...] = ()
    mutated_inputs: tuple[str, ...] = ()
    dims: tuple[Dim, ...] = ()
    constraints: tuple[str, ...] = field(default=(), metadata={"optional": True})
    ranges: tuple[InputRange, ...] = field(default=(), metadata={"optional": True})
    counted: tuple[Dim, ...] = field(default=(), metadata={"optional": True})


SlotKind: TypeAlias = Literal[
    "weight", "prepared", "state", "input", "output", "size", "count"
]


@dataclass(frozen=True)
class Slot:
    """One argument or result of a function, in calling order.

    kind "weight": a raw weight by FQN; "prepared": a result of `prepare`;
    "state": a state slot by name; "input": a user input (as a result: its mutated value);
    "output": a user output;
    "size": an array of as many elements as a counted dimension has, for its shape alone;
    "count": the number of them, an int64.
    """

    kind: SlotKind
    name: str
    shape: Shape
    dtype: str


@dataclass(frozen=True)
class FunctionSpec:
    """The calling convention of one StableHLO function or executable.

    main:    (weight | prepared)*, state*, input*, size*  ->  output*, state*, input*
    prepare: weight*                                      ->  prepared*
    count:   (weight | state | input | size)*             ->  count*
    A main argument of kind state has a result of the same name, which may reuse its buffer.
    """

    arguments: tuple[Slot, ...]
    results: tuple[Slot, ...]


@dataclass(frozen=True)
class LoweredFunction:
    """A function as portable StableHLO.

    Attributes:
        spec: its calling convention.
        modules: portable artifacts (VHLO bytecode) by variant: "" is what TPU compiles and what
            every platform without a variant of its own uses; "cpu" is present only
            when JAX lowers something differently there.
    """

    spec: FunctionSpec
    modules: dict[str, bytes] = field(repr=False)

    def module(self, platform: str) -> bytes:
        """Return the portable artifact for a platform ("tpu", "cpu")."""
        return self.modules.get(platform, self.modules[""])


def leading_slots(main: FunctionSpec) -> tuple[Slot, ...]:
    """Return main's arguments that come from weights."""
    return tuple(s for s in main.arguments if s.kind in ("weight", "prepared"))


def layout_prepare_spec(
    main: FunctionSpec, prepare: FunctionSpec | None
) -> FunctionSpec:
    """Return the calling convention of a TPU executable's prepare.

    It takes every raw weight once, prepare's first, and gives every leading argument of
    main in the layout that main's compiler chose.
    """
    leading = leading_slots(main)
    raw = [*(prepare.arguments if prepare else ()), *leading]
    weights = {slot.name: slot for slot in raw if slot.kind == "weight"}
    return FunctionSpec(tuple(weights.values()), leading)


def litert_names(slots: Iterable[Slot], *, result: bool) -> list[str]:
    """Return how LiteRT names slots: state, and inputs that come back, are qualified."""
    return [
        f"{s.kind}.{s.name}"
        if s.kind == "state" or (result and s.kind == "input")
        else s.name
        for s in slots
    ]

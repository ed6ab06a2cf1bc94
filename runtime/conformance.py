"""What a manifest says must agree with itself: rules 3.5 to 3.9 of docs/tpuexe.md."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Sequence

from tpu_export.runtime.archive import ArtifactCorruptedError
from tpu_export.runtime.expressions import FUNCTIONS, names_in
from tpu_export.runtime.manifest import Executable, Manifest, Program, WeightRef
from tpu_export.runtime.signature import (
    Dim,
    FunctionSpec,
    Signature,
    Slot,
    TensorSpec,
    Tree,
)
from tpu_export.runtime.tensors import CODES, MAX_RANK

MAX_SIZE = 2**63 - 1
MAX_DEPTH = 64
_SIGNATURE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=+\-]{0,127}\Z")
_TENSOR = re.compile(r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,1024}\Z")
_DIM = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")
_HASH = re.compile(r"[0-9a-f]{64}\Z")


def check_manifest(manifest: Manifest) -> None:
    """Check every rule that needs nothing but the manifest.

    Raises:
        ArtifactCorruptedError: naming the rule that is broken, and where.
    """
    _require(manifest.version >= 1, "3.3", f"format version {manifest.version}")
    for name, entry in manifest.entries.items():
        good = 0 <= entry.size <= MAX_SIZE and bool(_HASH.match(entry.sha256))
        _require(good, "3.2", f"bad size or hash of {name!r}")
    for name, weight in manifest.weights.items():
        spec = TensorSpec(name, weight.shape, weight.dtype)
        _check_tensors([spec], (), f"weight {name!r}")
        _require(bool(_TENSOR.match(weight.key)), "3.5", f"bad key of weight {name!r}")
    for name, program in manifest.programs.items():
        _require(name == program.signature.name, "3.5", f"{name!r} has another name")
        check_signature(program.signature, manifest.weights)
        _check_program(program, manifest.weights, f"program {name!r}")
    _check_shared_state(manifest)
    for executable in manifest.executables:
        _check_executable(executable, manifest)


def check_signature(signature: Signature, weights: dict[str, WeightRef]) -> None:
    """Check one signature; `weights` are what its state may begin with.

    Raises:
        ArtifactCorruptedError: naming the rule that is broken, and where.
    """
    name = signature.name
    _require(bool(_SIGNATURE.match(name)), "3.5", f"bad signature name {name!r}")
    where = f"signature {name!r}"
    _check_dims(signature.dims, where)
    dims = [dim.name for dim in signature.dims]
    for specs, known in (
        (signature.inputs, dims),
        (signature.outputs, dims),
        (signature.state, ()),
    ):
        _check_tensors(specs, known, where)
    parameters = [p.name for p in signature.parameters]
    _require(_distinct(parameters), "3.5", f"{where}: a parameter twice")
    for parameter in parameters:
        good = bool(_TENSOR.match(parameter))
        _require(good, "3.5", f"{where}: bad name of a parameter")
    _check_trees([p.tree for p in signature.parameters], len(signature.inputs), where)
    _check_trees([signature.output_tree], len(signature.outputs), where)
    inputs = {spec.name for spec in signature.inputs}
    written = signature.mutated_inputs
    good = _distinct(written) and set(written) <= inputs
    _require(good, "3.5", f"{where}: writes to an unknown input, or twice")
    for slot in signature.state:
        same = _is_weight(slot, weights)
        _require(same, "3.6", f"{where}: state {slot.name!r} has no initial value")


def _check_dims(dims: Sequence[Dim], where: str) -> None:
    _require(_distinct([d.name for d in dims]), "3.7", f"{where}: a dimension twice")
    for dim in dims:
        good = bool(_DIM.match(dim.name)) and dim.name not in FUNCTIONS
        good = good and not keyword.iskeyword(dim.name)
        _require(good, "3.7", f"{where}: bad dimension name {dim.name!r}")
        high = MAX_SIZE if dim.maximum is None else dim.maximum
        good = 0 <= dim.minimum <= high <= MAX_SIZE
        _require(good, "3.7", f"{where}: bad range of {dim.name!r}")


def _check_tensors(
    specs: Sequence[TensorSpec | Slot], dims: Sequence[str], where: str
) -> None:
    if not isinstance(next(iter(specs), None), Slot):
        names = [spec.name for spec in specs]
        _require(_distinct(names), "3.5", f"{where}: a tensor name twice")
    for spec in specs:
        good = bool(_TENSOR.match(spec.name)) and spec.dtype in CODES
        good = good and len(spec.shape) <= MAX_RANK
        _require(good, "3.5", f"{where}: bad name, dtype or rank of {spec.name!r}")
        for size in spec.shape:
            if isinstance(size, int):
                good = 0 <= size <= MAX_SIZE
                _require(good, "3.5", f"{where}: bad size of {spec.name!r}")
            else:
                _check_expression(size, dims, f"{where}: {spec.name!r}")


def _check_expression(text: str, dims: Sequence[str], where: str) -> None:
    try:
        unknown = names_in(text) - set(dims)
    except ValueError as error:
        raise ArtifactCorruptedError("3.7", f"{where}: {error}") from error
    _require(not unknown, "3.7", f"{where}: unknown dimension in {text!r}")


def _check_program(program: Program, weights: dict[str, WeightRef], where: str) -> None:
    signature, main, prepare = program.signature, program.main, program.prepare
    dims = [dim.name for dim in signature.dims]
    _check_tensors((*main.arguments, *main.results), dims, where)
    _check_variants(program.main_modules, where)
    prepared: set[tuple[object, ...]] = set()
    if prepare is None:
        _require(not program.prepare_modules, "3.6", f"{where}: prepare has no spec")
    else:
        _check_tensors((*prepare.arguments, *prepare.results), (), where)
        _check_variants(program.prepare_modules, where)
        _check_prepare(prepare, weights, where)
        prepared = {_key(slot) for slot in prepare.results}
    leading = [s for s in main.arguments if s.kind in ("weight", "prepared")]
    given = [_key(slot) for slot in leading if slot.kind == "prepared"]
    _require(_distinct([(s.kind, s.name) for s in leading]), "3.6", f"{where}: twice")
    for slot in leading:
        known = slot.kind == "prepared" or _is_weight(slot, weights)
        _require(known, "3.6", f"{where}: no weight {slot.name!r} of that shape")
    in_order = [_key(s) for s in prepare.results] if prepare else []
    _require(set(given) == prepared and given == in_order, "3.6", f"{where}: prepared")
    _check_order(signature, main, leading, where)


def _check_order(
    signature: Signature, main: FunctionSpec, leading: Sequence[Slot], where: str
) -> None:
    """main: leading*, state*, input* -> output*, state*, written input*."""
    state = [("state", *_tensor(s)) for s in signature.state]
    inputs = [("input", *_tensor(s)) for s in signature.inputs]
    outputs = [("output", *_tensor(s)) for s in signature.outputs]
    by_name = {s.name: ("input", *_tensor(s)) for s in signature.inputs}
    written = [by_name[name] for name in signature.mutated_inputs]
    arguments = [*map(_key, leading), *state, *inputs]
    same = arguments == [*map(_key, main.arguments)]
    _require(same, "3.6", f"{where}: arguments of main do not fit the signature")
    same = [*outputs, *state, *written] == [*map(_key, main.results)]
    _require(same, "3.6", f"{where}: results of main do not fit the signature")


def _check_prepare(
    prepare: FunctionSpec, weights: dict[str, WeightRef], where: str
) -> None:
    for slot in prepare.arguments:
        known = slot.kind == "weight" and _is_weight(slot, weights)
        _require(known, "3.6", f"{where}: no weight {slot.name!r} of that shape")
    kinds = {slot.kind for slot in prepare.results}
    _require(kinds <= {"prepared"}, "3.6", f"{where}: prepare gives {kinds}")
    for slots in (prepare.arguments, prepare.results):
        _require(_distinct([s.name for s in slots]), "3.6", f"{where}: a slot twice")


def _check_variants(modules: dict[str, str], where: str) -> None:
    good = "" in modules and set(modules) <= {"", "cpu", "tpu"}
    _require(good, "3.6", f"{where}: variants are {sorted(modules)}")


def _check_shared_state(manifest: Manifest) -> None:
    """A weight that one signature changes is no plain weight of another."""
    programs = manifest.programs.values()
    state = {slot.name for p in programs for slot in p.signature.state}
    for program in programs:
        functions = [program.main, *([program.prepare] if program.prepare else [])]
        fixed = {s.name for f in functions for s in f.arguments if s.kind == "weight"}
        both = sorted(fixed & state)
        _require(not both, "3.6", f"{both[:1]} is both weight and state")


def _check_executable(executable: Executable, manifest: Manifest) -> None:
    where = f"executable {executable.main!r}"
    program = manifest.programs.get(executable.signature)
    if program is None:
        what = f"an executable of an unknown signature {executable.signature!r}"
        raise ArtifactCorruptedError("3.8", what)
    _require(executable.platform in ("cpu", "tpu"), "3.8", f"{where}: platform")
    ranges = {dim.name: dim for dim in program.signature.dims}
    _require(set(ranges) == set(executable.dims), "3.8", f"{where}: dimensions")
    for name, size in executable.dims.items():
        high = MAX_SIZE if ranges[name].maximum is None else ranges[name].maximum
        _require(0 <= size <= (high or 0), "3.8", f"{where}: size of {name!r}")
    arguments = program.main.arguments
    same = len(executable.layouts) == len(arguments)
    _require(same, "3.8", f"{where}: as many layouts as arguments")
    for order, slot in zip(executable.layouts, arguments, strict=True):
        good = order is None or sorted(order) == list(range(len(slot.shape)))
        _require(good, "3.8", f"{where}: layout of {slot.name!r}")
    leading = any(s.kind in ("weight", "prepared") for s in arguments)
    wanted = program.prepare is not None if executable.platform == "cpu" else leading
    good = (executable.prepare is not None) == wanted
    _require(good, "3.8", f"{where}: prepare is missing, or too many")


def _check_trees(trees: Sequence[Tree], count: int, where: str) -> None:
    leaves = [leaf for tree in trees for leaf in _leaves(tree, 0, where)]
    _require(leaves == [*range(count)], "3.9", f"{where}: leaves are {leaves[:5]} …")


def _leaves(tree: object, depth: int, where: str) -> Iterator[int]:
    _require(depth < MAX_DEPTH, "3.9", f"{where}: a tree is too deep")
    match tree:
        case {"leaf": index, **rest} if type(index) is int and not rest:
            yield index
            return
        case {"const": None | bool() | int() | float() | str(), **rest} if not rest:
            return
        case {"list": list(children), **rest} if not rest:
            pass
        case {"tuple": list(children), **rest} if not rest:
            pass
        case {"dict": list(pairs), **rest} if not rest:
            children = _children(pairs, (str, int), where)
        case {"record": str(name), "kind": kind, "fields": list(pairs), **rest} if (
            not rest and kind in ("dataclass", "namedtuple", "mapping")
        ):
            children = _children(pairs, (str, int), where)
            words = [name, *(pair[0] for pair in pairs)]
            good = kind != "namedtuple" or all(map(_is_field, words))
            _require(good, "3.9", f"{where}: bad fields of a namedtuple")
        case _:
            raise ArtifactCorruptedError("3.9", f"{where}: not a tree")
    for child in children:
        yield from _leaves(child, depth + 1, where)


def _children(
    pairs: Sequence[object], kinds: tuple[type, ...], where: str
) -> list[object]:
    """Return the trees of [[key, tree], …]; keys are distinct, also as text."""
    keys, children = [], []
    for pair in pairs:
        good = isinstance(pair, list) and len(pair) == 2 and type(pair[0]) in kinds
        _require(good, "3.9", f"{where}: not a pair of key and tree")
        assert isinstance(pair, list)
        keys.append(pair[0])
        children.append(pair[1])
    _require(_distinct(keys), "3.9", f"{where}: a key twice")
    return children


def _is_field(word: object) -> bool:
    return (
        isinstance(word, str)
        and bool(re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", word))
        and not keyword.iskeyword(word)
    )


def _is_weight(slot: TensorSpec | Slot, weights: dict[str, WeightRef]) -> bool:
    weight = weights.get(slot.name)
    found = weight is not None and (weight.shape, weight.dtype)
    return found == (slot.shape, slot.dtype)


def _tensor(spec: TensorSpec | Slot) -> tuple[object, ...]:
    return spec.name, spec.shape, spec.dtype


def _key(slot: Slot) -> tuple[object, ...]:
    return slot.kind, *_tensor(slot)


def _distinct(items: Sequence[object]) -> bool:
    return len(set(items)) == len(items)


def _require(condition: bool, rule: str, what: str) -> None:
    if not condition:
        raise ArtifactCorruptedError(rule, what)

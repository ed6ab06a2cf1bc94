"""What a manifest says must agree with itself: rules 3.5 to 3.12 of docs/tpuexe.md."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tpu_export.runtime.archive import ArtifactCorruptedError
from tpu_export.runtime.code_rules import check_code
from tpu_export.runtime.expressions import constraint_names
from tpu_export.runtime.manifest import Manifest, Program, WeightRef, features_of
from tpu_export.runtime.signature import (
    FunctionSpec,
    Signature,
    Slot,
    TensorSpec,
)
from tpu_export.runtime.tensor_rules import (
    MAX_SIZE,
    TENSOR,
    check_dims,
    check_tensors,
    is_word,
)
from tpu_export.runtime.tree_rules import check_trees, distinct, require

_SIGNATURE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=+\-]{0,127}\Z")
# The dtypes of inputs that have ranges, and their least and greatest values.
_INDICES = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
_HASH = re.compile(r"[0-9a-f]{64}\Z")


def check_manifest(manifest: Manifest) -> None:
    """Check every rule that needs nothing but the manifest.

    Raises:
        ArtifactCorruptedError: naming the rule that is broken, and where.
    """
    require(manifest.version >= 1, "3.3", f"format version {manifest.version}")
    for name, entry in manifest.entries.items():
        good = 0 <= entry.size <= MAX_SIZE and bool(_HASH.match(entry.sha256))
        require(good, "3.2", f"bad size or hash of {name!r}")
    for name, weight in manifest.weights.items():
        spec = TensorSpec(name, weight.shape, weight.dtype)
        check_tensors([spec], (), f"weight {name!r}")
        require(bool(TENSOR.match(weight.key)), "3.5", f"bad key of weight {name!r}")
    for name, program in manifest.programs.items():
        require(name == program.signature.name, "3.5", f"{name!r} has another name")
        check_signature(program.signature, manifest.weights)
        _check_program(program, manifest.weights, f"program {name!r}")
    _check_shared_state(manifest)
    _check_features(manifest)
    check_code(manifest)


def check_signature(signature: Signature, weights: dict[str, WeightRef]) -> None:
    """Check one signature; `weights` are what its state may begin with.

    Raises:
        ArtifactCorruptedError: naming the rule that is broken, and where.
    """
    name = signature.name
    require(bool(_SIGNATURE.match(name)), "3.5", f"bad signature name {name!r}")
    where = f"signature {name!r}"
    dims = [dim.name for dim in signature.dims]
    check_dims((*signature.dims, *signature.counted), where)
    for specs, known in (
        (signature.inputs, dims),
        (signature.outputs, [*dims, *(dim.name for dim in signature.counted)]),
        (signature.state, ()),
    ):
        check_tensors(specs, known, where)
    parameters = [p.name for p in signature.parameters]
    require(distinct(parameters), "3.5", f"{where}: a parameter twice")
    for parameter in parameters:
        good = bool(TENSOR.match(parameter))
        require(good, "3.5", f"{where}: bad name of a parameter")
    check_trees([p.tree for p in signature.parameters], len(signature.inputs), where)
    check_trees([signature.output_tree], len(signature.outputs), where)
    inputs = {spec.name for spec in signature.inputs}
    written = signature.mutated_inputs
    good = distinct(written) and set(written) <= inputs
    require(good, "3.5", f"{where}: writes to an unknown input, or twice")
    _check_ranges(signature, where)
    for slot in signature.state:
        same = _is_weight(slot, weights)
        require(same, "3.6", f"{where}: state {slot.name!r} has no initial value")


def _check_ranges(signature: Signature, where: str) -> None:
    dtypes = {spec.name: spec.dtype for spec in signature.inputs}
    names = [r.name for r in signature.ranges]
    require(distinct(names), "3.11", f"{where}: two ranges of an input")
    for r in signature.ranges:
        info = _INDICES.get(dtypes.get(r.name, ""))
        good = info is not None and info[0] <= r.low <= r.high <= info[1]
        good = good and bool(TENSOR.match(r.because))
        require(good, "3.11", f"{where}: bad range of {r.name!r}")


def _check_features(manifest: Manifest) -> None:
    signatures = [program.signature for program in manifest.programs.values()]
    good = manifest.features == features_of(signatures, manifest.cpu_engines)
    require(good, "3.10", f"features are {manifest.features}")
    for signature in signatures:
        dims = (*signature.dims, *signature.counted)
        names = [dim.name for dim in dims] + [*numbers(signature)]
        for constraint in signature.constraints:
            _check_constraint(constraint, names, f"signature {signature.name!r}")


def _check_constraint(constraint: str, names: Sequence[str], where: str) -> None:
    try:
        unknown = constraint_names(constraint) - set(names)
    except ValueError as error:
        raise ArtifactCorruptedError("3.10", f"{where}: {error}") from error
    require(not unknown, "3.10", f"{where}: unknown name in {constraint!r}")


def numbers(signature: Signature) -> Iterator[str]:
    """Yield the inputs that a constraint may mention: whole numbers, of a plain name."""
    for spec in signature.inputs:
        if not spec.shape and spec.dtype == "int64" and is_word(spec.name):
            yield spec.name


def _check_program(program: Program, weights: dict[str, WeightRef], where: str) -> None:
    signature, main, prepare = program.signature, program.main, program.prepare
    dims = [dim.name for dim in (*signature.dims, *signature.counted)]
    check_tensors((*main.arguments, *main.results), dims, where)
    _check_counts(program, weights, where)
    _check_variants(program.main_modules, where)
    prepared: set[tuple[object, ...]] = set()
    if prepare is None:
        require(not program.prepare_modules, "3.6", f"{where}: prepare has no spec")
    else:
        check_tensors((*prepare.arguments, *prepare.results), (), where)
        _check_variants(program.prepare_modules, where)
        _check_prepare(prepare, weights, where)
        prepared = {_key(slot) for slot in prepare.results}
    leading = [s for s in main.arguments if s.kind in ("weight", "prepared")]
    given = [_key(slot) for slot in leading if slot.kind == "prepared"]
    require(distinct([(s.kind, s.name) for s in leading]), "3.6", f"{where}: twice")
    for slot in leading:
        known = slot.kind == "prepared" or _is_weight(slot, weights)
        require(known, "3.6", f"{where}: no weight {slot.name!r} of that shape")
    in_order = [_key(s) for s in prepare.results] if prepare else []
    require(set(given) == prepared and given == in_order, "3.6", f"{where}: prepared")
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
    arguments = [*map(_key, leading), *state, *inputs, *_sizes(signature)]
    same = arguments == [*map(_key, main.arguments)]
    require(same, "3.6", f"{where}: arguments of main do not fit the signature")
    same = [*outputs, *state, *written] == [*map(_key, main.results)]
    require(same, "3.6", f"{where}: results of main do not fit the signature")


def _sizes(signature: Signature) -> list[tuple[object, ...]]:
    return [("size", dim.name, (dim.name,), "bool") for dim in signature.counted]


def _check_counts(program: Program, weights: dict[str, WeightRef], where: str) -> None:
    """Each counted dimension comes from one function, which needs earlier ones only."""
    signature = program.signature
    dims = [dim.name for dim in signature.dims]
    given = {("state", *_tensor(s)) for s in signature.state}
    given |= {("input", *_tensor(s)) for s in signature.inputs}
    counted: list[str] = []
    for function in program.counts:
        spec = function.spec
        check_tensors((*spec.arguments, *spec.results), [*dims, *counted], where)
        _check_variants(function.modules, where)
        known = {size for size in _sizes(signature) if size[1] in counted}
        for slot in spec.arguments:
            weight = slot.kind == "weight" and _is_weight(slot, weights)
            good = weight or _key(slot) in given | known
            require(good, "3.12", f"{where}: a count takes {slot.name!r}")
        for slot in spec.results:
            good = _key(slot) == ("count", slot.name, (), "int64")
            require(good, "3.12", f"{where}: a count gives {slot.name!r}")
            counted.append(slot.name)
    names = [dim.name for dim in signature.counted]
    good = distinct(counted) and sorted(counted) == sorted(names)
    require(good, "3.12", f"{where}: counted dimensions are {counted}")


def _check_prepare(
    prepare: FunctionSpec, weights: dict[str, WeightRef], where: str
) -> None:
    for slot in prepare.arguments:
        known = slot.kind == "weight" and _is_weight(slot, weights)
        require(known, "3.6", f"{where}: no weight {slot.name!r} of that shape")
    kinds = {slot.kind for slot in prepare.results}
    require(kinds <= {"prepared"}, "3.6", f"{where}: prepare gives {kinds}")
    for slots in (prepare.arguments, prepare.results):
        require(distinct([s.name for s in slots]), "3.6", f"{where}: a slot twice")


def _check_variants(modules: dict[str, str], where: str) -> None:
    good = "" in modules and set(modules) <= {"", "cpu", "tpu"}
    require(good, "3.6", f"{where}: variants are {sorted(modules)}")


def _check_shared_state(manifest: Manifest) -> None:
    """A weight that one signature changes is no plain weight of another."""
    programs = manifest.programs.values()
    state = {slot.name for p in programs for slot in p.signature.state}
    for program in programs:
        functions = [program.main, *([program.prepare] if program.prepare else [])]
        functions += [function.spec for function in program.counts]
        fixed = {s.name for f in functions for s in f.arguments if s.kind == "weight"}
        both = sorted(fixed & state)
        require(not both, "3.6", f"{both[:1]} is both weight and state")


def _is_weight(slot: TensorSpec | Slot, weights: dict[str, WeightRef]) -> bool:
    weight = weights.get(slot.name)
    found = weight is not None and (weight.shape, weight.dtype)
    return found == (slot.shape, slot.dtype)


def _tensor(spec: TensorSpec | Slot) -> tuple[object, ...]:
    return spec.name, spec.shape, spec.dtype


def _key(slot: Slot) -> tuple[object, ...]:
    return slot.kind, *_tensor(slot)

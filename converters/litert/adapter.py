"""The only file that touches litert_converter's private API. Imported in workers only.

Written for litert-converter 0.5; `probe` says whether the installed one has what is used.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from litert_converter.mlir import ir, passmanager
from litert_converter.mlir._mlir_libs import converter_api_ext as api
from litert_converter.mlir.dialects import arith, stablehlo

from tpu_export.converters.litert.builtins import CONSTANTS, replace_composites
from tpu_export.converters.litert.exchange import Array
from tpu_export.converters.litert.folding import folded
from tpu_export.converters.litert.integers import Integers
from tpu_export.converters.litert.standins import StandIn, is_large
from tpu_export.converters.litert.withdrawal import ValuesNeededError, Withdrawal

Weight: TypeAlias = Array | StandIn
_USED = (
    "ConvertToTFLConfig",
    "export_flatbuffer_to_file",
    "merge_modules",
    "prepare_mlir_context",
    "run_convert_to_tfl_passes",
    "set_signature",
)


@dataclass(frozen=True)
class SignatureJob:
    """One signature to convert.

    Attributes:
        name: of the signature.
        module: portable StableHLO with static shapes.
        weights: an array, or what stands in for it, for each leading argument, in order.
        inputs: names of the other arguments; outputs: of the results.
    """

    name: str
    module: bytes
    weights: Sequence[Weight]
    inputs: Sequence[str]
    outputs: Sequence[str]


def probe() -> list[str]:
    """Return the names that the installed converter lacks."""
    return [name for name in _USED if not hasattr(api, name)]


class Conversion:
    """Parses the signatures of one file, and converts them together."""

    def __init__(self) -> None:
        self._context = ir.Context()
        api.prepare_mlir_context(self._context)
        self._modules: list[Any] = []
        self._constants = _Constants()
        self.integers = Integers()

    def parse(self, module: bytes) -> Any:
        """Return a portable artifact as an MLIR module."""
        with self._context, ir.Location.unknown():
            return stablehlo.deserialize_portable_artifact(self._context, module)

    def add(self, job: SignatureJob, module: Any) -> None:
        """Bake the weights into a parsed module and name its signature."""
        with self._context, ir.Location.unknown():
            function = _main(module)
            self.integers.replace(module, function, _reader(job.weights))
            _bake(function, job.weights, self._constants)
            api.set_signature(
                module.operation, job.name, list(job.inputs), list(job.outputs)
            )
        self._modules.append(module)

    def convert(self, path: Path, *, copies: bool = True) -> Withdrawal:
        """Write the .tflite, and return what its markers stand for.

        Args:
            path: of the file.
            copies: of shared results; without them for the self-test only.

        Raises:
            RuntimeError: of the converter, with its diagnostics.
            ValuesNeededError: it cannot be converted with stand-ins.
        """
        with self._context, ir.Location.unknown():
            merged = api.merge_modules(self._modules)
            config = api.ConvertToTFLConfig()
            config.model_origin_framework = "PYTORCH"
            config.unsafe_fuse_dynamic_shaped_broadcast = True
            config.canonicalizing_inf_as_min_max_float = False
            config.enable_x64 = True
            # Integers between quantizations, floats at the borders, and nothing by guessing.
            config.qdq_conversion_mode = "DYNAMIC"
            config.strict_qdq_mode = True
            api.run_convert_to_tfl_passes(merged, passmanager.PassManager(), config)
            replace_composites(merged)
            for operation in merged.body.operations:
                if "tf.entry_function" in operation.attributes:
                    self.integers.join(operation)
                    if copies:
                        _separate_results(operation)
            withdrawal = Withdrawal(self._constants.stand_ins)
            withdrawal.run(merged.body)
            api.export_flatbuffer_to_file(merged.operation, str(path))
        return withdrawal


def _separate_results(function: Any) -> None:
    """Copy results that are arguments, of a branch, or returned before.

    CompiledModel gives garbage for them, or leaves them out.
    """
    block = function.regions[0].blocks[0]
    seen = set(block.arguments)
    results = block.operations[len(block.operations) - 1]
    for position, value in enumerate(results.operands):
        made_by = getattr(value.owner, "name", "")  # an argument has a block
        if value in seen or made_by == "tfl.if":
            with ir.InsertionPoint(results):
                results.operands[position] = _copied(value)
        seen.add(value)


def _copied(value: Any) -> Any:
    """Gather every row: the flatbuffer export would fold a reshape or an addition of 0.

    A constant is written twice: rows of one are gathered before CompiledModel looks.
    """
    if getattr(value.owner, "name", "") in CONSTANTS:
        return value.owner.clone().result
    kind = ir.RankedTensorType(value.type)
    if not kind.shape:
        row = ir.RankedTensorType.get([1], kind.element_type)
        return _reshaped(_copied(_reshaped(value, row)), kind)
    rows = _indices(range(kind.shape[0]))
    number = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 0)
    return ir.Operation.create(
        "tfl.gather",
        results=[kind],
        operands=[value, rows],
        attributes={"axis": number, "batch_dims": number},
    ).result


def _reshaped(value: Any, kind: Any) -> Any:
    shape = _indices(kind.shape)
    return ir.Operation.create("tfl.reshape", [kind], [value, shape]).result


def _indices(values: Iterable[int]) -> Any:
    array = np.array([*values], np.int32)
    dense = ir.DenseElementsAttr.get(array, type=ir.IntegerType.get_signless(32))
    return ir.Operation.create(
        "tfl.pseudo_const", results=[dense.type], attributes={"value": dense}
    ).result


def _main(module: Any) -> Any:
    for operation in module.body.operations:
        name = operation.attributes["sym_name"]
        if ir.StringAttr(name).value == "main":
            return operation
    message = "a portable artifact without @main"
    raise AssertionError(message)


class _Constants:
    """Attributes of weights. One weight is one attribute: what the file then holds once.

    Attributes:
        stand_ins: keys of weights that have no values here, by the name of their resource.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[int, str, bool], tuple[Any, Any]] = {}
        self.stand_ins: dict[str, str] = {}

    def of(self, weight: Weight, kind: Any, *, dense: bool) -> Any:
        """Return the attribute of a weight, which must live as long as this object."""
        key = (id(weight), str(kind), dense)
        if key not in self._made:
            name = f"weight.{len(self._made)}"
            if isinstance(weight, StandIn):
                self.stand_ins[name] = weight.key
                attribute, kept = _unreadable(name, weight, kind)
            else:
                kept = np.require(weight, requirements="C")  # it may be a view
                attribute = _constant(name, kept, kind, dense)
            self._made[key] = attribute, (weight, kept)
        return self._made[key][0]


def _reader(weights: Sequence[Weight]) -> Callable[[Any], Array | None]:
    """Return what tells the values of leading arguments."""

    def values(argument: Any) -> Array | None:
        number = ir.BlockArgument(argument).arg_number
        weight = weights[number] if number < len(weights) else None
        if isinstance(weight, StandIn):
            raise ValuesNeededError({weight.key}, "quantized_decomposed")
        return weight

    return values


def _bake(
    function: Any,
    weights: Sequence[Weight],
    constants: _Constants,
) -> None:
    """Replace the leading arguments by constants that refer to the arrays' memory."""
    block = function.regions[0].blocks[0]
    count = len(weights)
    with ir.InsertionPoint.at_block_begin(block):
        for argument, weight in zip(
            list(block.arguments)[:count], weights, strict=True
        ):
            kind = ir.RankedTensorType(argument.type)
            attribute = constants.of(weight, kind, dense=folded(argument, count))
            argument.replace_all_uses_with(_holding(attribute, kind))
    for index in reversed(range(count)):
        block.erase_argument(index)
    old = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    new = ir.FunctionType.get(old.inputs[count:], old.results)
    function.attributes["function_type"] = ir.TypeAttr.get(new)
    if "arg_attrs" in function.attributes:
        kept = list(ir.ArrayAttr(function.attributes["arg_attrs"]))[count:]
        function.attributes["arg_attrs"] = ir.ArrayAttr.get(kept)


def _holding(attribute: Any, kind: Any) -> Any:
    if str(kind.element_type).startswith("ui"):
        return stablehlo.ConstantOp(attribute).result  # arith has signless ones only
    return arith.ConstantOp(kind, attribute).result


def _unreadable(name: str, weight: StandIn, kind: Any) -> tuple[Any, Any]:
    """Return a resource without values, and its memory: who reads it dies, and is not wrong."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = mmap.mmap(-1, weight.nbytes, flags=flags, prot=0)
    made = ir.DenseResourceElementsAttr.get_from_buffer(memoryview(memory), name, kind)
    return made, memory


def _constant(name: str, array: Array, kind: Any, dense: bool) -> Any:
    if is_large(array) and not dense:
        return ir.DenseResourceElementsAttr.get_from_buffer(array.data, name, kind)
    # A copy of its own: a small mapped view may be read-only. Booleans are a byte each.
    copy = np.array(array)
    return ir.DenseElementsAttr.get(copy, type=kind.element_type, shape=kind.shape)


def names_of(spec: Mapping[str, Sequence[Mapping[str, str]]], side: str) -> list[str]:
    """Return how LiteRT names the slots of one side: state and inputs written to qualified."""
    result = []
    for slot in spec[side]:
        kind, name = slot["kind"], slot["name"]
        if kind in ("weight", "prepared"):
            continue
        qualified = kind == "state" or (kind == "input" and side == "results")
        result.append(f"{kind}.{name}" if qualified else name)
    return result

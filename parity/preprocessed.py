"""A captured signature that takes the bytes of images: example, reference and all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument
from torch.fx import GraphModule

from tpu_export.converters.stablehlo.graph_copy import changed, with_constants
from tpu_export.exporter.capture import Captured, Example
from tpu_export.exporter.signature import user_arguments
from tpu_export.parity.job import Job
from tpu_export.parity.normalization import (
    Normalization,
    PreprocessError,
    axis_of_channels,
    read_normalization,
)
from tpu_export.parity.samples import Second
from tpu_export.parity.wrapped import Wrapped, mapped
from tpu_export.runtime.signature import Signature, TensorSpec

aten = torch.ops.aten


def preprocessed_job(job: Job) -> Job:
    """Return a job whose signatures take uint8 images where that is asked for.

    Raises:
        PreprocessError: a name is no input, or one that cannot be an image.
    """
    asked = {n: read_normalization(t) for n, t in job.litert.preprocess.items()}
    if not asked:
        return job
    used: set[str] = set()
    found = {}
    for name, captured in job.signatures.items():
        own = _own(asked, captured)
        used |= own.keys()
        found[name] = preprocessed(captured, own) if own else captured
    if unknown := sorted(asked.keys() - used):
        inputs = {s.name for c in job.signatures.values() for s in c.signature.inputs}
        raise PreprocessError(
            f"no input {', '.join(map(repr, unknown))} to preprocess",
            hint=f"inputs are {', '.join(sorted(inputs))}",
        )
    notes = [
        f"{name} takes uint8: (x/255 - mean)/std of {norm} is in the file, at most "
        f"{norm.error():.1e} from torch's own"
        for name, norm in asked.items()
    ]
    return replace(
        job,
        signatures=found,
        second_inputs=_drawing(job.second_inputs, job.signatures, asked),
        notes=(*job.notes, *notes),
    )


def preprocessed(captured: Captured, asked: Mapping[str, Normalization]) -> Captured:
    """Return the signature with such inputs as uint8, and the arithmetic in its graph."""
    signature = replace(
        captured.signature,
        inputs=tuple(
            replace(s, dtype="uint8") if s.name in asked else s
            for s in captured.signature.inputs
        ),
    )
    return replace(
        captured,
        program=_program(captured, asked),
        signature=signature,
        example=_as_bytes(captured.signature, captured.example, asked),
        model=Preprocessed(captured, asked),
    )


class Preprocessed(Wrapped):
    """Torch eager on bytes: normalized as torchvision does, then the model."""

    def __init__(self, captured: Captured, asked: Mapping[str, Normalization]) -> None:
        """Stand before the model of a signature."""
        super().__init__(captured)
        self._signature, self._asked = captured.signature, asked

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model on normalized images."""

        def normalized(x: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
            norm = self._asked.get(spec.name)
            if norm is None:
                return x
            mean, std = (_per_channel(v, x) for v in (norm.mean, norm.std))
            y = (x.to(torch.float32) / 255 - mean) / std
            return y.to(getattr(torch, spec.dtype))

        own = mapped(self._signature, (args, kwargs), normalized)
        return self._model(*own[0], **own[1])


def _own(
    asked: Mapping[str, Normalization], captured: Captured
) -> dict[str, Normalization]:
    """Return what is asked of inputs of this signature."""
    specs = {s.name: s for s in captured.signature.inputs}
    for name, norm in asked.items():
        if name not in specs:
            continue
        spec, problem = specs[name], ""
        axis = axis_of_channels(spec.shape)
        if "float" not in spec.dtype:
            problem = f"is {spec.dtype}, not floating-point"
        elif norm.channels() > 1 and axis is None:
            problem = f"has {len(spec.shape)} dimensions, not 4 or 3"
        elif norm.channels() > 1 and spec.shape[axis or 0] != norm.channels():
            problem = f"has {spec.shape[axis or 0]} channels, not {norm.channels()}"
        if problem:
            raise PreprocessError(
                f"input {name!r} of {captured.name!r} {problem}: it cannot be preprocessed",
                hint="name an image of the model: float, [N, C, H, W] or [C, H, W]",
            )
    return {name: norm for name, norm in asked.items() if name in specs}


def _arguments(captured: Captured) -> dict[str, str]:
    """Return the placeholder of each input, by its name."""
    tensors = [
        argument.name
        for argument in user_arguments(captured.program)
        if not isinstance(argument, ConstantArgument)
    ]
    names = [spec.name for spec in captured.signature.inputs]
    return dict(zip(names, tensors, strict=True))


def _program(captured: Captured, asked: Mapping[str, Normalization]) -> ExportedProgram:
    """Put a * x + b after each such input."""
    arguments = _arguments(captured)
    shapes = {spec.name: spec.shape for spec in captured.signature.inputs}
    constants = {}
    for name, norm in asked.items():
        place = arguments[name]
        after = len(shapes[name]) - 1 - (axis_of_channels(shapes[name]) or 0)
        after = after if norm.channels() > 1 else 0
        for part, values in zip(("slope", "offset"), norm.factors(), strict=True):
            tensor = torch.from_numpy(values.copy()).reshape(-1, *[1] * after)
            constants[f"{place}_preprocess_{part}"] = tensor

    def insert(module: GraphModule) -> None:
        nodes = {n.name: n for n in module.graph.nodes if n.op == "placeholder"}
        first = next(n for n in module.graph.nodes if n.op != "placeholder")
        for place in (arguments[name] for name in asked):
            image = nodes[place]
            value = image.meta["val"]
            users = list(image.users)
            image.meta["val"] = value.to(torch.uint8)
            steps: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
                (aten._to_copy.default, (), {"dtype": torch.float32}),
                (aten.mul.Tensor, (nodes[f"{place}_preprocess_slope"],), {}),
                (aten.add.Tensor, (nodes[f"{place}_preprocess_offset"],), {}),
                (aten._to_copy.default, (), {"dtype": value.dtype}),
            ]
            node = image
            for op, more, options in steps:
                with module.graph.inserting_before(first):
                    node = module.graph.call_function(op, (node, *more), options)
                node.meta["val"] = value.to(options.get("dtype", torch.float32))
            for user in users:
                user.replace_input_with(image, node)

    return changed(with_constants(captured.program, constants), insert)


def _as_bytes(
    signature: Signature, example: Example, asked: Mapping[str, Normalization]
) -> Example:
    """Return torch's arguments with images as the bytes that give nearly these."""

    def rounded(x: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
        norm = asked.get(spec.name)
        if norm is None:
            return x
        mean, std = (_per_channel(v, x) for v in (norm.mean, norm.std))
        exact = (x.detach().to(torch.float32) * std + mean) * 255
        return exact.nan_to_num().round().clamp(0, 255).to(torch.uint8)

    return mapped(signature, example, rounded)


def _drawing(
    second: Second | None,
    captured: Mapping[str, Captured],
    asked: Mapping[str, Normalization],
) -> Second | None:
    """Return what draws second inputs as the file takes them; None for those like the example."""
    if second is None:
        return None

    def draw(own: Captured, seed: int) -> Example:
        plain = captured[own.name]
        return _as_bytes(plain.signature, second(plain, seed), asked)

    return draw


def _per_channel(values: tuple[float, ...], x: torch.Tensor) -> torch.Tensor:
    tensor = torch.tensor(values, dtype=torch.float32)
    axis = axis_of_channels(x.shape)
    return tensor if axis is None else tensor.reshape(-1, *[1] * (x.ndim - 1 - axis))

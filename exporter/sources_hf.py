"""A model from a local Hugging Face directory: config.json and weights, no network."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch

from tpu_export.exporter.hf_inputs import example_inputs
from tpu_export.exporter.sources import EntryPoint, Source
from tpu_export.runtime.errors import MissingExtraError, TpuExportError

WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")


class HuggingFaceDirectoryError(TpuExportError):
    """The directory lacks its config or weights, or holds another architecture."""

    code = "TPX-0114"


def hugging_face_source(text: str, folder: Path) -> Source:
    """Load the model of a directory, with inputs made for its architecture.

    Raises:
        HuggingFaceDirectoryError: no config, no weights, unknown architecture.
        MissingExtraError: transformers is not installed.
    """
    config = _config(folder)
    if not any((folder / name).is_file() for name in WEIGHTS):
        raise HuggingFaceDirectoryError(
            f"{folder} has no weights",
            hint=f"it should hold one of {', '.join(WEIGHTS)}",
        )
    model = _load(folder, config)
    kwargs = example_inputs(model, folder)
    if kwargs is None:
        raise HuggingFaceDirectoryError(
            f"no example inputs are known for {type(model).__name__}, "
            f"whose main input is {getattr(model, 'main_input_name', 'unknown')!r}",
            hint="write a model.py with get_model() and get_inputs()",
        )
    entry = EntryPoint(model, (), kwargs)
    return Source(text, folder.resolve().name, None, {"forward": entry})


def _config(folder: Path) -> dict[str, object]:
    path = folder / "config.json"
    if not path.is_file():
        raise HuggingFaceDirectoryError(
            f"{folder} has no config.json",
            hint="give a directory saved by save_pretrained(); nothing is downloaded",
        )
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise HuggingFaceDirectoryError(
            f"{path} is no JSON: {error}", hint="copy the file again"
        ) from error
    if not isinstance(config, dict):
        raise HuggingFaceDirectoryError(f"{path} is no object", hint="copy it again")
    return config


def _load(folder: Path, config: dict[str, object]) -> torch.nn.Module:
    try:
        import transformers
        from transformers.utils import logging
    except ImportError:
        raise MissingExtraError("transformers", "zoo") from None
    kind = _class(transformers, folder, config)
    cast(Callable[[], None], logging.disable_progress_bar)()
    try:
        model = kind.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # transformers documents no set of errors
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise HuggingFaceDirectoryError(
            f"{folder} cannot be loaded as {kind.__name__}: {reason}",
            hint="check that config.json and the weights belong together",
        ) from error
    assert isinstance(model, torch.nn.Module)
    for part in model.modules():  # one forward pass: the cache is no result
        settings = getattr(part, "config", None)
        if hasattr(settings, "use_cache"):
            setattr(settings, "use_cache", False)  # noqa: B010  # a config has no type
    return model.eval()


def _class(transformers: Any, folder: Path, config: dict[str, object]) -> Any:
    architectures = config.get("architectures")
    if not isinstance(architectures, list) or not architectures:
        return transformers.AutoModel
    kind = getattr(transformers, str(architectures[0]), None)
    if kind is None:
        raise HuggingFaceDirectoryError(
            f"{folder} holds a {architectures[0]}, which transformers "
            f"{transformers.__version__} does not know",
            hint="upgrade transformers, or write a model.py with get_model(); code "
            "in the directory is never run",
        )
    return kind

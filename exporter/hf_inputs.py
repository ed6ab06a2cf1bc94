"""Example inputs for a transformers model, from its config and its main input."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

SENTENCE = "The quick brown fox jumps over the lazy dog."
TOKENS = 16

Inputs = dict[str, object]


def example_inputs(model: Any, folder: Path) -> Inputs | None:
    """Return keyword inputs for forward(), or None for an unknown kind of model."""
    make = _MAKERS.get(model.main_input_name)
    if make is None:
        return None
    inputs = make(model, folder)
    if model.config.model_type in _TWO_TOWERS:
        inputs = {**_text(model, folder), **_pixels(model, folder)}
    if "decoder_input_ids" in inspect.signature(model.forward).parameters:
        start = _first(model.config, "decoder_start_token_id", "bos_token_id") or 0
        inputs["decoder_input_ids"] = torch.full((1, TOKENS // 2), start)
    return inputs


_TWO_TOWERS = {"clip", "siglip", "siglip2", "chinese_clip", "altclip", "blip"}


def _text(model: Any, folder: Path) -> Inputs:
    encoded = _tokenized(model, folder)
    if encoded is not None:
        return encoded
    generator = torch.Generator().manual_seed(0)
    config = getattr(model.config, "text_config", model.config)
    ids = torch.randint(3, config.vocab_size, (1, TOKENS), generator=generator)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _tokenized(model: Any, folder: Path) -> Inputs | None:
    """Tokenize a sentence, where the directory has a tokenizer."""
    if not (folder / "tokenizer.json").is_file():
        return None
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    return dict(tokenizer(SENTENCE, return_tensors="pt"))


def _pixels(model: Any, folder: Path) -> Inputs:
    config = getattr(model.config, "vision_config", model.config)
    height, width = _image_size(config, folder)
    channels = _first(config, "num_channels", "in_channels") or 3
    return {"pixel_values": _noise(1, channels, height, width)}


def _image_size(config: Any, folder: Path) -> tuple[int, int]:
    """Return the height and width that the model was made for."""
    size = _first(config, "image_size", "anchor_image_size")
    processor = folder / "preprocessor_config.json"
    if size is None and processor.is_file():
        size = json.loads(processor.read_text(encoding="utf-8")).get("size")
    if isinstance(size, dict):
        size = [
            size.get(k, size.get("shortest_edge", 224)) for k in ("height", "width")
        ]
    if isinstance(size, list | tuple):
        height, width = size
        return height, width
    return (size, size) if size else (224, 224)


def _features(model: Any, folder: Path) -> Inputs:
    config = model.config
    bins = _first(config, "num_mel_bins", "feature_size", "input_feat_per_channel")
    frames = 2 * (_first(config, "max_source_positions") or 500)
    if model.config.model_type == "whisper":
        return {"input_features": _noise(1, bins or 80, frames)}
    return {"input_features": _noise(1, 100, bins or 80)}


def _samples(model: Any, folder: Path) -> Inputs:
    return {"input_values": _noise(1, 16000)}


def _history(model: Any, folder: Path) -> Inputs:
    config = model.config
    length = _first(config, "context_length", "prediction_length") or 32
    channels = _first(config, "num_input_channels", "input_size") or 1
    return {"past_values": _noise(1, length, channels)}


_MAKERS: dict[str, Callable[[Any, Path], Inputs]] = {
    "input_ids": _text,
    "pixel_values": _pixels,
    "input_features": _features,
    "input_values": _samples,
    "past_values": _history,
}


def _first(config: Any, *names: str) -> Any:
    found = (getattr(config, name, None) for name in names)
    return next((value for value in found if value is not None), None)


def _noise(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))

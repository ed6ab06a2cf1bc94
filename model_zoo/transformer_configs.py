"""Full-size architectures from transformers' configs, with seeded random weights."""

from __future__ import annotations

import torch

from tpu_export.model_zoo.packages import transformers
from tpu_export.model_zoo.seeds import calibrated, noise, seeded, tokens
from tpu_export.model_zoo.zoo import Built


def resnet50(seed: int) -> Built:
    library = transformers()
    config = library.ResNetConfig(num_labels=1000)
    model = seeded(lambda: library.ResNetForImageClassification(config), seed)
    return calibrated(model, noise(2, 3, 224, 224)), (noise(1, 3, 224, 224),), {}


def mobilenetv2(seed: int) -> Built:
    library = transformers()
    config = library.MobileNetV2Config(num_labels=1001)
    model = seeded(lambda: library.MobileNetV2ForImageClassification(config), seed)
    return calibrated(model, noise(2, 3, 224, 224)), (noise(1, 3, 224, 224),), {}


def vit_b_16(seed: int) -> Built:
    library = transformers()
    config = library.ViTConfig(num_labels=1000)
    model = seeded(lambda: library.ViTForImageClassification(config), seed)
    return model, (noise(1, 3, 224, 224),), {}


def bert_base(seed: int) -> Built:
    library = transformers()
    model = seeded(lambda: library.BertModel(library.BertConfig()), seed)
    ids = tokens(1, 128, limit=30522)
    mask = torch.ones_like(ids)
    mask[:, 100:] = 0
    return model, (), {"input_ids": ids, "attention_mask": mask}


def llama_small(seed: int) -> Built:
    library = transformers()
    config = library.LlamaConfig(
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=8,
        num_attention_heads=16,
        num_key_value_heads=8,
        vocab_size=32000,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        use_cache=False,
    )
    model = seeded(lambda: library.LlamaForCausalLM(config), seed)
    return model, (), {"input_ids": tokens(1, 512, limit=32000)}

"""Tiny random models of many transformers architectures: what a converter must survive.

Each builder gives (model, kwargs); configs keep what makes an architecture special
(grouped queries, windows, experts, relative positions) and shrink the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch

from tpu_export.model_zoo.packages import transformers
from tpu_export.model_zoo.seeds import calibrated, noise, seeded, tokens

Architecture: TypeAlias = tuple[torch.nn.Module, dict[str, object]]
Inputs: TypeAlias = Mapping[str, object]

_TEXT: dict[str, object] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 99,
    "max_position_embeddings": 64,
}
_DECODER: dict[str, object] = {**_TEXT, "num_key_value_heads": 2, "use_cache": False}
_IMAGE: dict[str, object] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 32,
    "patch_size": 8,
}
_EXPERTS: dict[str, object] = {"num_experts_per_tok": 2, "output_router_logits": False}


def _make(config: str, model: str, **fields: object) -> torch.nn.Module:
    library = transformers()
    settings = getattr(library, config)(**fields)
    return seeded(lambda: getattr(library, model)(settings), 0)


def _ids(length: int = 12) -> dict[str, object]:
    ids = tokens(2, length, limit=90)
    mask = torch.ones_like(ids)
    mask[1, length - 3 :] = 0
    return {"input_ids": ids + 3, "attention_mask": mask}


def _pixels(size: int = 32) -> dict[str, object]:
    return {"pixel_values": noise(1, 3, size, size)}


def _image(config: str, model: str, size: int, **fields: object) -> Architecture:
    network = _make(config, model, **fields)
    return calibrated(network, noise(8, 3, size, size)), _pixels(size)


def _text(config: str, model: str, **fields: object) -> Architecture:
    return _make(config, model, **fields), _ids()


def resnet() -> Architecture:
    return _image(
        "ResNetConfig",
        "ResNetForImageClassification",
        32,
        embedding_size=8,
        hidden_sizes=[16, 32],
        depths=[1, 2],
    )


def convnext() -> Architecture:
    return _image(
        "ConvNextConfig",
        "ConvNextForImageClassification",
        32,
        hidden_sizes=[8, 16, 24, 32],
        depths=[1, 1, 2, 1],
    )


def mobilenet_v2() -> Architecture:
    return _image(
        "MobileNetV2Config",
        "MobileNetV2ForImageClassification",
        96,
        depth_multiplier=0.25,
        image_size=96,
    )


def vit() -> Architecture:
    return _image("ViTConfig", "ViTForImageClassification", 32, **_IMAGE)


def swin() -> Architecture:
    return _image(
        "SwinConfig",
        "SwinForImageClassification",
        32,
        image_size=32,
        patch_size=2,
        embed_dim=8,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=4,
    )


def dinov2() -> Architecture:
    fields = {k: v for k, v in _IMAGE.items() if k != "intermediate_size"}
    return _image("Dinov2Config", "Dinov2Model", 32, **fields, mlp_ratio=2)


def clip() -> Architecture:
    model = _make(
        "CLIPConfig",
        "CLIPModel",
        text_config={**_TEXT, "bos_token_id": 1, "eos_token_id": 2},
        vision_config=dict(_IMAGE),
        projection_dim=16,
    )
    return model, {**_ids(), "pixel_values": noise(2, 3, 32, 32)}


def detr() -> Architecture:
    backbone = transformers().ResNetConfig(
        embedding_size=8, hidden_sizes=[16, 32], depths=[1, 1], out_features=["stage2"]
    )
    return _image(
        "DetrConfig",
        "DetrForObjectDetection",
        64,
        backbone_config=backbone,
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        num_queries=6,
    )


def rt_detr() -> Architecture:
    backbone = transformers().RTDetrResNetConfig(
        embedding_size=8,
        hidden_sizes=[16, 32, 48, 64],
        depths=[1, 1, 1, 1],
        layer_type="bottleneck",
        out_features=["stage2", "stage3", "stage4"],
    )
    return _image(
        "RTDetrConfig",
        "RTDetrForObjectDetection",
        64,
        backbone_config=backbone,
        encoder_hidden_dim=32,
        encoder_in_channels=[32, 48, 64],
        encoder_ffn_dim=48,
        encoder_attention_heads=4,
        d_model=32,
        num_queries=10,
        decoder_in_channels=[32, 32, 32],
        decoder_ffn_dim=48,
        decoder_layers=2,
        decoder_attention_heads=4,
        num_labels=7,
        anchor_image_size=[64, 64],
        num_denoising=0,
    )


def segformer() -> Architecture:
    return _image(
        "SegformerConfig",
        "SegformerForSemanticSegmentation",
        64,
        depths=[1, 1, 1, 1],
        hidden_sizes=[8, 16, 24, 32],
        num_attention_heads=[1, 2, 2, 4],
        decoder_hidden_size=16,
    )


def bert() -> Architecture:
    return _text("BertConfig", "BertForMaskedLM", **_TEXT)


def roberta() -> Architecture:
    return _text("RobertaConfig", "RobertaForSequenceClassification", **_TEXT)


def distilbert() -> Architecture:
    return _text(
        "DistilBertConfig",
        "DistilBertForSequenceClassification",
        dim=32,
        n_layers=2,
        n_heads=4,
        hidden_dim=48,
        vocab_size=99,
        max_position_embeddings=64,
    )


def t5() -> Architecture:
    model = _make(
        "T5Config",
        "T5ForConditionalGeneration",
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=2,
        num_heads=4,
        vocab_size=99,
        use_cache=False,
        decoder_start_token_id=0,
    )
    return model, {**_ids(), "decoder_input_ids": tokens(2, 5, limit=99)}


def gpt2() -> Architecture:
    return _text(
        "GPT2Config",
        "GPT2LMHeadModel",
        n_embd=32,
        n_layer=2,
        n_head=4,
        vocab_size=99,
        n_positions=64,
        use_cache=False,
    )


def llama() -> Architecture:
    return _text("LlamaConfig", "LlamaForCausalLM", **_DECODER)


def qwen3() -> Architecture:
    return _text("Qwen3Config", "Qwen3ForCausalLM", **_DECODER, head_dim=8)


def gemma3() -> Architecture:
    return _text(
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        **_DECODER,
        head_dim=8,
        sliding_window=6,
        layer_types=["sliding_attention", "full_attention"],
    )


def mistral() -> Architecture:
    return _text("MistralConfig", "MistralForCausalLM", **_DECODER, sliding_window=6)


def mixtral() -> Architecture:
    return _text(
        "MixtralConfig",
        "MixtralForCausalLM",
        **_DECODER,
        **_EXPERTS,
        num_local_experts=4,
    )


def qwen3_moe() -> Architecture:
    return _text(
        "Qwen3MoeConfig",
        "Qwen3MoeForCausalLM",
        **_DECODER,
        **_EXPERTS,
        num_experts=4,
        moe_intermediate_size=16,
        head_dim=8,
    )


def whisper() -> Architecture:
    model = _make(
        "WhisperConfig",
        "WhisperForConditionalGeneration",
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        vocab_size=99,
        num_mel_bins=16,
        max_source_positions=40,
        max_target_positions=32,
        use_cache=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    return model, {
        "input_features": noise(1, 16, 80),
        "decoder_input_ids": tokens(1, 5, limit=99),
    }


def wav2vec2() -> Architecture:
    model = _make(
        "Wav2Vec2Config",
        "Wav2Vec2ForCTC",
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        conv_dim=[16, 16, 16],
        conv_stride=[5, 2, 2],
        conv_kernel=[10, 3, 3],
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
        vocab_size=32,
    )
    return model, {"input_values": noise(1, 800)}


def mamba() -> Architecture:
    model = _make(
        "MambaConfig",
        "MambaForCausalLM",
        hidden_size=32,
        state_size=8,
        num_hidden_layers=2,
        vocab_size=99,
        use_cache=False,
    )
    return model, {"input_ids": tokens(1, 10, limit=99)}


def patchtst() -> Architecture:
    model = _make(
        "PatchTSTConfig",
        "PatchTSTForPrediction",
        num_input_channels=3,
        context_length=32,
        patch_length=8,
        patch_stride=8,
        d_model=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        ffn_dim=24,
        prediction_length=8,
    )
    return model, {"past_values": noise(2, 32, 3)}


BUILDERS: dict[str, Callable[[], Architecture]] = {
    f.__name__: f
    for f in (
        *(resnet, convnext, mobilenet_v2, vit, swin, dinov2, clip, detr, rt_detr),
        *(segformer, bert, roberta, distilbert, t5, gpt2, llama, qwen3, gemma3),
        *(mistral, mixtral, qwen3_moe, whisper, wav2vec2, mamba, patchtst),
    )
}


def reference(model: torch.nn.Module, inputs: Inputs) -> Any:
    """Return what the model gives in torch eager."""
    with torch.no_grad():
        return model(**inputs)

"""Tiny random vision models of transformers."""

from __future__ import annotations

from tpu_export.model_zoo.packages import transformers
from tpu_export.model_zoo.seeds import calibrated, noise
from tpu_export.model_zoo.tiny import IMAGE, Architecture, make


def _image(config: str, model: str, size: int, **fields: object) -> Architecture:
    network = make(config, model, **fields)
    return calibrated(network, noise(8, 3, size, size)), {
        "pixel_values": noise(1, 3, size, size)
    }


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
    return _image("ViTConfig", "ViTForImageClassification", 32, **IMAGE)


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
    fields = {k: v for k, v in IMAGE.items() if k != "intermediate_size"}
    return _image("Dinov2Config", "Dinov2Model", 32, **fields, mlp_ratio=2)


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


VISION = (resnet, convnext, mobilenet_v2, vit, swin, dinov2, detr, rt_detr, segformer)

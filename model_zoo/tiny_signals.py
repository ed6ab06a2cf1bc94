"""Tiny random transformers models of speech, of pictures with text, and of time series."""

from __future__ import annotations

from tpu_export.model_zoo.seeds import noise, tokens
from tpu_export.model_zoo.tiny import IMAGE, TEXT, Architecture, make, token_inputs


def clip() -> Architecture:
    model = make(
        "CLIPConfig",
        "CLIPModel",
        text_config={**TEXT, "bos_token_id": 1, "eos_token_id": 2},
        vision_config=dict(IMAGE),
        projection_dim=16,
    )
    return model, {**token_inputs(), "pixel_values": noise(2, 3, 32, 32)}


def whisper() -> Architecture:
    model = make(
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
    model = make(
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


def patchtst() -> Architecture:
    model = make(
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


SIGNALS = (clip, whisper, wav2vec2, patchtst)

"""Tiny random language models of transformers."""

from __future__ import annotations

from tpu_export.model_zoo.seeds import tokens
from tpu_export.model_zoo.tiny import TEXT, Architecture, make, token_inputs

_DECODER: dict[str, object] = {**TEXT, "num_key_value_heads": 2, "use_cache": False}
_EXPERTS: dict[str, object] = {"num_experts_per_tok": 2, "output_router_logits": False}


def _text(config: str, model: str, **fields: object) -> Architecture:
    return make(config, model, **fields), token_inputs()


def bert() -> Architecture:
    return _text("BertConfig", "BertForMaskedLM", **TEXT)


def roberta() -> Architecture:
    return _text("RobertaConfig", "RobertaForSequenceClassification", **TEXT)


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
    model = make(
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
    return model, {**token_inputs(), "decoder_input_ids": tokens(2, 5, limit=99)}


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


def mamba() -> Architecture:
    model = make(
        "MambaConfig",
        "MambaForCausalLM",
        hidden_size=32,
        state_size=8,
        num_hidden_layers=2,
        vocab_size=99,
        use_cache=False,
    )
    return model, {"input_ids": tokens(1, 10, limit=99)}


LANGUAGE = (
    bert,
    roberta,
    distilbert,
    t5,
    gpt2,
    llama,
    qwen3,
    gemma3,
    mistral,
    mixtral,
    qwen3_moe,
    mamba,
)

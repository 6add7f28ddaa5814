"""Writes `config.json` of an ONNX folder, from which transformers.js chooses a class.
transformers.js computes nothing from this file, so one model type stands for all options of a
family."""

from typing import Any

from clearhead.config import ModelConfig
from clearhead.interop.model_folder import TokenIds
from clearhead.interop.onnx.precision import Precision

ARCHITECTURES = {
    "encoder-decoder": "MarianMTModel",
    "decoder": "LlamaForCausalLM",
    "encoder": "BertForMaskedLM",
}
CLASSIFIER = "BertForSequenceClassification"


def architecture_of(config: ModelConfig) -> str:
    """Return the class with which transformers.js opens the folder."""
    return CLASSIFIER if config.labels else ARCHITECTURES[config.family]


def configuration(config: ModelConfig, ids: TokenIds, precision: Precision) -> dict[str, Any]:
    """Return the content of `config.json`."""
    common = {
        "architectures": [architecture_of(config)],
        "is_encoder_decoder": config.family == "encoder-decoder",
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.max_length,
        "bos_token_id": ids.bos,
        "eos_token_id": ids.eos,
        "pad_token_id": config.pad_id,
        # Without this, browsers look for another file.
        "transformers.js_config": {"dtype": precision},
    }
    match config.family:
        case "encoder-decoder":
            return common | {
                "model_type": "marian",
                "decoder_start_token_id": ids.decoder_start,
                "decoder_vocab_size": config.output_vocab_size,
                "d_model": config.d_model,
                "encoder_layers": config.n_layers,
                "decoder_layers": config.decoder_layers,
                "encoder_attention_heads": config.n_heads,
                "decoder_attention_heads": config.n_heads,
            }
        case "decoder":
            return common | {
                "model_type": "llama",
                "hidden_size": config.d_model,
                "num_hidden_layers": config.n_layers,
                "num_attention_heads": config.n_heads,
                "num_key_value_heads": config.kv_heads,
                "head_dim": config.head_width,
            }
        case "encoder":
            return common | {
                "model_type": "bert",
                "hidden_size": config.d_model,
                "num_hidden_layers": config.n_layers,
                "num_attention_heads": config.n_heads,
                **_labels(config),
            }


def _labels(config: ModelConfig) -> dict[str, Any]:
    if not config.labels:
        return {}
    return {
        "id2label": {str(number): label for number, label in enumerate(config.labels)},
        "label2id": {label: number for number, label in enumerate(config.labels)},
    }

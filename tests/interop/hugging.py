"""Tiny models made by transformers, every number in them random, and how to run them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.interop.huggingface.family import HuggingFaceFamily
from clearhead.interop.model_folder import TokenIds

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

BOTH_TOWERS = {
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 31,
    "decoder_ffn_dim": 31,
    "max_position_embeddings": 29,
    "vocab_size": 53,
    "scale_embedding": True,
}
ENCODER = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 31,
    "vocab_size": 53,
}

LABELLED = {
    "id2label": {0: "good", 1: "bad", 2: "so so"},
    "label2id": {"good": 0, "bad": 1, "so so": 2},
}


@dataclass(frozen=True)
class Kind:
    """A family in transformers' own words."""

    config: str
    model: str
    settings: dict[str, Any]

    def make(self, seed: int = 0, dtype: torch.dtype = torch.float32, **changes: Any) -> Any:
        config = getattr(transformers, self.config)(**{**self.settings, **changes})
        model = getattr(transformers, self.model)(config)
        return randomise(model, seed).to(dtype).eval()


KINDS = {
    "gpt2": Kind(
        "GPT2Config",
        "GPT2LMHeadModel",
        {
            "vocab_size": 53,
            "n_embd": 24,
            "n_layer": 2,
            "n_head": 4,
            "n_inner": 31,
            "n_positions": 29,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
    "llama": Kind(
        "LlamaConfig",
        "LlamaForCausalLM",
        {
            "vocab_size": 53,
            "hidden_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 31,
            "max_position_embeddings": 29,
            "pad_token_id": 0,
        },
    ),
    "bert": Kind("BertConfig", "BertForMaskedLM", {**ENCODER, "max_position_embeddings": 29}),
    "roberta-prelayernorm": Kind(
        "RobertaPreLayerNormConfig",
        "RobertaPreLayerNormForMaskedLM",
        {**ENCODER, "max_position_embeddings": 29},
    ),
    "bert classifier": Kind(
        "BertConfig",
        "BertForSequenceClassification",
        {**ENCODER, "max_position_embeddings": 29, **LABELLED},
    ),
    "roberta-prelayernorm classifier": Kind(
        "RobertaPreLayerNormConfig",
        "RobertaPreLayerNormForSequenceClassification",
        {**ENCODER, "max_position_embeddings": 29, **LABELLED},
    ),
    "marian": Kind(
        "MarianConfig",
        "MarianMTModel",
        {
            **BOTH_TOWERS,
            "pad_token_id": 52,
            "decoder_start_token_id": 52,
            "forced_eos_token_id": None,
        },
    ),
    "pegasus": Kind(
        "PegasusConfig",
        "PegasusForConditionalGeneration",
        {**BOTH_TOWERS, "forced_eos_token_id": None},
    ),
    "m2m_100": Kind("M2M100Config", "M2M100ForConditionalGeneration", BOTH_TOWERS),
}


def kind_of(family: HuggingFaceFamily) -> str:
    """The name of a family in `KINDS`."""
    return next(name for name, kind in KINDS.items() if kind.model == family.architecture)


OVER_TOKENS = [name for name in KINDS if not name.endswith("classifier")]
GENERATIVE = ("gpt2", "llama", "marian", "pegasus", "m2m_100")


@torch.no_grad()
def randomise(model: Any, seed: int) -> Any:
    """Biases and norms too: nothing hides behind a zero or a one. Tables that follow from a formula
    stay as they are."""
    generator = torch.Generator().manual_seed(seed)
    state = model.named_parameters()
    buffers = ((name, b) for name, b in model.named_buffers() if name == "final_logits_bias")
    for name, tensor in (*state, *buffers):
        if "embed_positions" in name:
            continue
        noise = 0.2 * torch.randn(tensor.shape, generator=generator)
        is_norms_weight = tensor.ndim == 1 and name.endswith("weight")
        tensor.copy_(1 + noise if is_norms_weight else noise)
    return model


def open_theirs(folder: Path, dtype: torch.dtype = torch.float32) -> Any:
    """As a user would: by the auto class of the task."""
    config = transformers.AutoConfig.from_pretrained(folder)
    if config.is_encoder_decoder:
        auto = transformers.AutoModelForSeq2SeqLM
    elif config.architectures[0].endswith("MaskedLM"):
        auto = transformers.AutoModelForMaskedLM
    elif config.architectures[0].endswith("SequenceClassification"):
        auto = transformers.AutoModelForSequenceClassification
    else:
        auto = transformers.AutoModelForCausalLM
    model, loading = auto.from_pretrained(folder, dtype=dtype, output_loading_info=True)
    assert not any(loading.values()), loading
    return model.eval()


@torch.no_grad()
def their_logits(model: Any, tokens: Tensor, real: Tensor, source: tuple | None) -> Tensor:
    if source is not None:
        return model(
            input_ids=source[0],
            attention_mask=source[1].long(),
            decoder_input_ids=tokens,
            decoder_attention_mask=real.long(),
        ).logits
    return model(input_ids=tokens, attention_mask=real.long()).logits


@torch.no_grad()
def our_logits(model: Any, tokens: Tensor, real: Tensor, source: tuple | None) -> Tensor:
    if source is not None:
        return model(source[0], tokens, source_real=source[1], target_real=real)
    return model(tokens, real=real)


def padded_tokens(
    vocab_size: int, pad_id: int, lengths: list[int], seed: int, *, left: bool = False
) -> tuple[Tensor, Tensor]:
    """Random tokens, padded to the longest, and which of them are real."""
    generator = torch.Generator().manual_seed(seed)
    allowed = torch.tensor([i for i in range(vocab_size) if i != pad_id])
    rows, real = [], []
    for length in lengths:
        row = allowed[torch.randint(len(allowed), (length,), generator=generator)]
        padding = torch.full((max(lengths) - length,), pad_id)
        marks = torch.ones(length, dtype=torch.bool), torch.zeros(len(padding), dtype=torch.bool)
        rows.append(torch.cat((padding, row) if left else (row, padding)))
        real.append(torch.cat(marks[::-1] if left else marks))
    return torch.stack(rows), torch.stack(real)


def largest_difference(theirs: Any, ours: Any) -> float:
    """Over padded batches, at the tokens that are real."""
    config = ours.config
    largest = 0.0
    for seed, lengths in enumerate(([9, 9, 9], [11, 4, 1], [1, 1], [config.max_length])):
        tokens, real = padded_tokens(config.output_vocab_size, config.pad_id, lengths, seed)
        source = None
        if config.family == "encoder-decoder":
            source = padded_tokens(config.vocab_size, config.pad_id, lengths[::-1], seed + 10)
        one = their_logits(theirs, tokens, real, source)
        other = our_logits(ours, tokens, real, source)
        if not config.labels:
            one, other = one[real], other[real]
        largest = max(largest, (one[:, : other.shape[1]] - other).abs().max().item())
    assert one.std() > 0.1  # the comparison is of something
    return largest


def norm_llama_in_fp64(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers computes this one norm in fp32, whatever the dtype of the model: without that
    cast, what is left to compare is the model."""

    def forward(self: Any, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.variance_epsilon)

    norm = transformers.models.llama.modeling_llama.LlamaRMSNorm
    monkeypatch.setattr(norm, "forward", forward)


def ids_for(config: ModelConfig) -> TokenIds:
    """M2M100 has no position for its padding, with which its decoder must not start."""
    return TokenIds(decoder_start=2 if config.pad_id == 1 else 1)

"""Logits, weights and written text are the same on both sides, for each family, both ways."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.decoding import DecodeConfig, greedy
from clearhead.interop.huggingface.exporting import export_model
from clearhead.interop.huggingface.importing import import_model
from clearhead.interop.model_folder import TokenIds, load_model, save_model
from clearhead.models import CausalLM, Seq2Seq
from tests.drawing import LABELS, random_model
from tests.interop.hugging import (
    GENERATIVE,
    KINDS,
    ids_for,
    largest_difference,
    norm_llama_in_fp64,
    open_theirs,
    padded_tokens,
)

SIZES = {"vocab_size": 53, "d_model": 24, "n_layers": 2, "n_heads": 4, "d_ff": 31, "max_length": 29}
ENCODER = {"family": "encoder", "positions": "learned", "embedding_norm": True, "output_bias": True}
OURS: dict[str, dict[str, Any]] = {
    "gpt2": {"family": "decoder", "positions": "learned", "embedding_scale": False},
    "llama": {
        "family": "decoder",
        "positions": "rotary",
        "norm": "rms",
        "bias": False,
        "feed_forward": "swiglu",
        "embedding_scale": False,
    },
    "bert": {**ENCODER, "norm_placement": "post", "n_segments": 2, "embedding_scale": False},
    "roberta-prelayernorm": {
        **ENCODER,
        "pad_id": 1,
        "first_position": 2,
        "feed_forward": "gelu",
        "n_segments": 1,
        "embedding_scale": False,
    },
    "bert classifier": {
        **ENCODER,
        "norm_placement": "post",
        "n_segments": 2,
        "embedding_scale": False,
        "labels": LABELS,
    },
    "roberta-prelayernorm classifier": {
        **ENCODER,
        "pad_id": 1,
        "first_position": 2,
        "n_segments": 1,
        "embedding_scale": False,
        "labels": LABELS,
    },
    "marian": {"norm_placement": "post", "output_bias": True},
    "pegasus": {"norm_placement": "pre", "output_bias": True},
    "m2m_100": {"position_spacing": "closed", "pad_id": 1, "first_position": 2},
}
"""The configurations that a family holds as they are."""
MAX_NEW = 12
DTYPES = [(torch.float32, 1e-5), (torch.float64, 1e-10)]


def our_config(family: str) -> ModelConfig:
    return ModelConfig(**SIZES, **OURS[family])


@pytest.mark.parametrize(("dtype", "limit"), DTYPES, ids=["fp32", "fp64"])
@pytest.mark.parametrize("family", KINDS)
def test_a_model_made_by_transformers_computes_the_same_here(
    family: str, dtype: torch.dtype, limit: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if dtype == torch.float64:
        norm_llama_in_fp64(monkeypatch)
    theirs = KINDS[family].make(dtype=dtype)
    theirs.save_pretrained(tmp_path / "theirs")
    import_model(tmp_path / "theirs", tmp_path / "ours")
    ours = load_model(tmp_path / "ours")
    assert ours.tokens.weight.dtype == dtype
    assert largest_difference(theirs, ours) <= limit


@pytest.mark.parametrize(("dtype", "limit"), DTYPES, ids=["fp32", "fp64"])
@pytest.mark.parametrize("family", KINDS)
def test_a_model_made_here_computes_the_same_in_transformers(
    family: str, dtype: torch.dtype, limit: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if dtype == torch.float64:
        norm_llama_in_fp64(monkeypatch)
    ours = random_model(our_config(family), dtype=dtype)
    save_model(ours, tmp_path / "ours", ids=ids_for(ours.config))
    certificate = export_model(tmp_path / "ours", tmp_path / "theirs")
    theirs = open_theirs(tmp_path / "theirs", dtype)
    assert theirs.config.model_type == family.removesuffix(" classifier")
    assert certificate.n_tokens > 100
    assert largest_difference(theirs, ours) <= limit


@pytest.mark.parametrize("family", KINDS)
def test_in_and_out_again_leaves_every_bit_of_their_tensors(family: str, tmp_path: Path):
    KINDS[family].make().save_pretrained(tmp_path / "theirs")
    import_model(tmp_path / "theirs", tmp_path / "ours")
    export_model(tmp_path / "ours", tmp_path / "again", check=False)
    assert_same_bits(tmp_path / "theirs", tmp_path / "again")


@pytest.mark.parametrize("family", KINDS)
def test_out_and_in_again_leaves_the_model_and_every_bit_of_our_tensors(
    family: str, tmp_path: Path
):
    config = our_config(family)
    model = random_model(config, dtype=torch.float32)
    save_model(model, tmp_path / "ours", ids=ids_for(config))
    export_model(tmp_path / "ours", tmp_path / "theirs", check=False)
    import_model(tmp_path / "theirs", tmp_path / "again")
    assert_same_bits(tmp_path / "ours", tmp_path / "again")


def assert_same_bits(one: Path, other: Path) -> None:
    ours, again = load_file(one / "model.safetensors"), load_file(other / "model.safetensors")
    assert ours.keys() == again.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor, again[name]), name


@pytest.mark.parametrize("family", GENERATIVE)
def test_a_model_made_by_transformers_writes_the_same_here(family: str, tmp_path: Path):
    pad_id = KINDS[family].make().config.pad_token_id
    theirs = attentive(KINDS[family].make(), pad_id)
    theirs.save_pretrained(tmp_path / "first")
    import_model(tmp_path / "first", tmp_path / "ours-first")
    eos = a_token_to_end_with(load_model(tmp_path / "ours-first"))

    theirs = attentive(KINDS[family].make(eos_token_id=eos), pad_id)
    theirs.save_pretrained(tmp_path / "theirs")
    ids = import_model(tmp_path / "theirs", tmp_path / "ours").ids
    assert ids.eos == eos
    assert_same_writing(theirs, load_model(tmp_path / "ours"), ids)


@pytest.mark.parametrize("family", GENERATIVE)
def test_a_model_made_here_writes_the_same_in_transformers(family: str, tmp_path: Path):
    """It starts and stops as ours does, by what the exported folder says alone."""
    config = our_config(family)
    assert config.pad_id is not None
    ours = attentive(random_model(config, dtype=torch.float32), config.pad_id)
    ids = TokenIds(bos=5, decoder_start=7, eos=a_token_to_end_with(ours))
    save_model(ours, tmp_path / "ours", ids=ids)
    export_model(tmp_path / "ours", tmp_path / "theirs", check=False)
    assert_same_writing(open_theirs(tmp_path / "theirs"), ours, ids)


@torch.no_grad()
def attentive(model: Any, pad_id: int) -> Any:
    """A random model repeats itself; with large matrices and small biases, what it writes depends
    on all that it reads. It does not write padding, as no trained model does: M2M100 would give it
    no position."""
    tables = ("tokens", "shared", "wte", "wpe", "position", "lm_head")
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.sub_(parameter.mean())
        elif parameter.ndim == 2 and not any(table in name for table in tables):
            parameter.mul_(8)
        elif name in ("tokens.weight", "model.shared.weight"):
            parameter[pad_id] = 0
    return model


def prompts_for(model: CausalLM | Seq2Seq) -> tuple[Tensor, Tensor]:
    """A hundred, of one to seven tokens, and which of these are real."""
    lengths = [1 + i % 7 for i in range(100)]
    left = isinstance(model, CausalLM)
    return padded_tokens(model.config.vocab_size, model.config.pad_id, lengths, seed=0, left=left)


def write(model: CausalLM | Seq2Seq, *, start: int | None, eos: int | None) -> Tensor:
    """New tokens, padded on the right behind the end."""
    prompts, real = prompts_for(model)
    inputs = [row[mask].tolist() for row, mask in zip(prompts, real)]
    outputs = greedy(model, inputs, DecodeConfig(max_new=MAX_NEW, eos_id=eos, start_id=start))
    longest = max(len(output.tokens) for output in outputs)
    filler = [model.config.pad_id] * longest
    return torch.tensor([(output.tokens + filler)[:longest] for output in outputs])


def a_token_to_end_with(model: CausalLM | Seq2Seq) -> int:
    """One that a random model writes in about half of its texts, so that some end and some not."""
    written = write(model, start=7, eos=None)
    n_texts = [(written == token).any(dim=1).sum().item() for token in range(SIZES["vocab_size"])]
    others = [token for token in range(len(n_texts)) if token != model.config.pad_id]
    return min(others, key=lambda token: abs(n_texts[token] - len(written) / 2))


def assert_same_writing(theirs: Any, ours: CausalLM | Seq2Seq, ids: TokenIds) -> None:
    prompts, real = prompts_for(ours)
    written = theirs.generate(
        prompts, attention_mask=real.long(), max_new_tokens=MAX_NEW, do_sample=False, num_beams=1
    )
    if isinstance(ours, CausalLM):
        written = written[:, prompts.shape[1] :]
    else:
        assert (written[:, 0] == ids.decoder_start).all()
        written = written[:, 1:]
    assert torch.equal(written, write(ours, start=ids.decoder_start, eos=ids.eos))
    assert len(set(map(tuple, written.tolist()))) > 5
    assert 5 < (written == ids.eos).any(dim=1).sum() < 95

"""Where a family has several ways to say a thing, or ours must be rewritten first."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.interop.huggingface.exporting import export_model
from clearhead.interop.huggingface.importing import import_model
from clearhead.interop.model_folder import load_model, save_model
from tests.drawing import random_model
from tests.interop.hugging import (
    KINDS,
    OVER_TOKENS,
    ids_for,
    largest_difference,
    norm_llama_in_fp64,
    open_theirs,
)
from tests.interop.test_parity import our_config


def exported(config: ModelConfig, folder: Path) -> tuple[Any, Any, dict[str, Tensor]]:
    """Ours, theirs and their tensors, all in fp64."""
    ours = random_model(config)
    save_model(ours, folder / "ours", ids=ids_for(config))
    export_model(folder / "ours", folder / "theirs", check=False)
    tensors = load_file(folder / "theirs" / "model.safetensors")
    return ours, open_theirs(folder / "theirs", torch.float64), tensors


def imported(theirs: Any, folder: Path) -> Any:
    theirs.save_pretrained(folder / "theirs")
    import_model(folder / "theirs", folder / "ours")
    return load_model(folder / "ours")


def test_an_imported_llama_has_no_dropout_that_theirs_has_not(tmp_path: Path):
    assert imported(KINDS["llama"].make(), tmp_path).config.p_dropout == 0.0


# Tied, untied, separate vocabularies


@pytest.mark.parametrize("family", OVER_TOKENS)
def test_tied_output_is_one_tensor_there(family: str, tmp_path: Path):
    ours, theirs, tensors = exported(replace(our_config(family), tie_output=True), tmp_path)
    assert theirs.config.tie_word_embeddings
    assert not any(name.endswith(("lm_head.weight", "decoder.weight")) for name in tensors)
    assert theirs.get_output_embeddings().weight is theirs.get_input_embeddings().weight
    assert largest_difference(theirs, ours) <= 1e-5


@pytest.mark.parametrize("family", OVER_TOKENS)
def test_untied_output_is_a_tensor_of_its_own_there(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    norm_llama_in_fp64(monkeypatch)
    ours, theirs, _ = exported(replace(our_config(family), tie_output=False), tmp_path)
    assert not theirs.config.tie_word_embeddings
    assert torch.equal(theirs.get_output_embeddings().weight, ours.output.weight)
    assert largest_difference(theirs, ours) <= 1e-10


@pytest.mark.parametrize("family", OVER_TOKENS)
def test_untied_output_of_theirs_comes_in(family: str, tmp_path: Path):
    theirs = KINDS[family].make(tie_word_embeddings=False)
    ours = imported(theirs, tmp_path)
    assert not ours.config.tie_output
    assert largest_difference(theirs, ours) <= 1e-5


@pytest.mark.parametrize("family", ["gpt2", "llama", "marian", "pegasus", "m2m_100"])
def test_tied_output_of_theirs_comes_in(family: str, tmp_path: Path):
    theirs = KINDS[family].make(tie_word_embeddings=True)
    ours = imported(theirs, tmp_path)
    assert ours.config.tie_output
    assert ours.config.target_vocab_size is None
    assert largest_difference(theirs, ours) <= 1e-5


@pytest.mark.parametrize("target_vocab_size", [47, 59])
@pytest.mark.parametrize("tie_output", [True, False])
@pytest.mark.parametrize("family", ["marian", "pegasus"])
def test_separate_vocabularies_go_out(
    family: str, tie_output: bool, target_vocab_size: int, tmp_path: Path
):
    separate = replace(
        our_config(family), target_vocab_size=target_vocab_size, tie_output=tie_output
    )
    ours, theirs, _ = exported(separate, tmp_path)
    assert largest_difference(theirs, ours) <= 1e-10


def test_a_token_that_fills_up_a_vocabulary_is_never_written(tmp_path: Path):
    _, theirs, tensors = exported(replace(our_config("pegasus"), target_vocab_size=47), tmp_path)
    assert theirs.config.vocab_size == 53
    assert (tensors["final_logits_bias"][0, 47:] == -3e4).all()


def test_separate_vocabularies_of_marian_come_in(tmp_path: Path):
    theirs = KINDS["marian"].make(
        share_encoder_decoder_embeddings=False,
        decoder_vocab_size=47,
        pad_token_id=46,
        decoder_start_token_id=46,
    )
    ours = imported(theirs, tmp_path)
    assert (ours.config.vocab_size, ours.config.target_vocab_size) == (53, 47)
    assert ours.config.tie_output
    assert largest_difference(theirs, ours) <= 1e-5


# What must be rewritten first


@pytest.mark.parametrize("tie_output", [True, False])
def test_root_d_scaled_gpt2_stays_a_gpt2(tie_output: bool, tmp_path: Path):
    """GPT-2 does not scale: the table is larger there and, tied, the last norm smaller."""
    scaled = replace(our_config("gpt2"), embedding_scale=True, tie_output=tie_output)
    ours, theirs, tensors = exported(scaled, tmp_path)
    root = 24**0.5
    assert torch.equal(tensors["transformer.wte.weight"], ours.tokens.weight * root)
    shrunk = ours.decoder.norm.weight / (root if tie_output else 1)
    assert torch.equal(tensors["transformer.ln_f.weight"], shrunk)
    assert theirs.config.tie_word_embeddings == tie_output
    assert largest_difference(theirs, ours) <= 1e-10


def test_m2m100_position_formula_is_closed_and_starts_behind_the_pad_id(tmp_path: Path):
    ours, theirs, _ = exported(our_config("m2m_100"), tmp_path)
    table = theirs.model.encoder.embed_positions.weights
    assert torch.equal(ours.embedding.positions.table[2:], table[2:].double())
    assert largest_difference(theirs, ours) <= 1e-10


@pytest.mark.parametrize("pairs", ["halves", "interleaved"])
@pytest.mark.parametrize("n_kv_heads", [1, 2, 4])
def test_grouped_query_llama_keeps_its_groups(
    n_kv_heads: int, pairs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    norm_llama_in_fp64(monkeypatch)
    config = replace(our_config("llama"), n_kv_heads=n_kv_heads, position_pairs=pairs, d_head=10)
    ours, theirs, tensors = exported(config, tmp_path)
    assert theirs.config.num_key_value_heads == n_kv_heads
    assert tensors["model.layers.0.self_attn.k_proj.weight"].shape == (n_kv_heads * 10, 24)
    assert largest_difference(theirs, ours) <= 1e-10


def test_grouped_query_llama_comes_in(tmp_path: Path):
    theirs = KINDS["llama"].make(
        num_key_value_heads=2,
        head_dim=10,
        attention_bias=True,
        mlp_bias=True,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
    )
    ours = imported(theirs, tmp_path)
    assert (ours.config.kv_heads, ours.config.head_width) == (2, 10)
    assert ours.config.position_base == 500
    assert largest_difference(theirs, ours) <= 1e-5


@pytest.mark.parametrize("feed_forward", ["gelu", "relu"])
def test_berts_head_goes_along(feed_forward: Any, tmp_path: Path):
    """Dense, activation, norm, then the table with a bias; segments are told apart."""
    config = replace(our_config("bert"), feed_forward=feed_forward, norm_eps=1e-12)
    ours, theirs, tensors = exported(config, tmp_path)
    assert torch.equal(tensors["cls.predictions.transform.dense.weight"], ours.head.dense.weight)
    assert torch.equal(tensors["cls.predictions.bias"], ours.output.bias)
    tokens, segments = torch.randint(1, 53, (2, 9)), torch.randint(2, (2, 9))
    with torch.no_grad():
        their_logits = theirs(tokens, token_type_ids=segments).logits
        our_logits = ours(tokens, segments=segments)
    assert (their_logits - our_logits).abs().max() <= 1e-10
    assert (their_logits - theirs(tokens).logits).abs().max() > 0.01


@pytest.mark.parametrize("family", ["marian", "m2m_100"])
def test_an_interleaved_sinusoid_becomes_halves(family: str, tmp_path: Path):
    """These families compute their table, in halves: the residual stream is reordered instead, so
    that nothing is lost when transformers saves the model again."""
    ours, theirs, _ = exported(replace(our_config(family), position_pairs="interleaved"), tmp_path)
    assert largest_difference(theirs, ours) <= 1e-10
    theirs.save_pretrained(tmp_path / "saved-again")
    assert largest_difference(open_theirs(tmp_path / "saved-again", torch.float64), ours) <= 1e-10


@pytest.mark.parametrize("positions", ["sinusoidal", "none"])
@pytest.mark.parametrize("family", ["gpt2", "bert", "roberta-prelayernorm", "pegasus"])
def test_a_family_with_a_table_takes_any_fixed_positions(
    family: str, positions: Any, tmp_path: Path
):
    config = replace(
        our_config(family),
        positions=positions,
        first_position=0,
        position_pairs="interleaved",
        position_base=100.0,
    )
    ours, theirs, _ = exported(config, tmp_path)
    assert largest_difference(theirs, ours) <= 1e-10


@pytest.mark.parametrize("first_position", [0, 5])
@pytest.mark.parametrize("family", ["gpt2", "bert", "roberta-prelayernorm", "pegasus"])
def test_a_learned_table_is_moved_to_where_theirs_starts(
    family: str, first_position: int, tmp_path: Path
):
    config = replace(our_config(family), positions="learned", first_position=first_position)
    ours, theirs, _ = exported(config, tmp_path)
    assert largest_difference(theirs, ours) <= 1e-10


@pytest.mark.parametrize("pairs", ["halves", "interleaved"])
def test_a_sinusoid_comes_back_as_a_sinusoid(pairs: Any, tmp_path: Path):
    ours, _, _ = exported(replace(our_config("pegasus"), position_pairs=pairs), tmp_path)
    import_model(tmp_path / "theirs", tmp_path / "back")
    back = load_model(tmp_path / "back")
    assert (back.config.positions, back.config.position_pairs) == ("sinusoidal", pairs)
    assert back.state_dict().keys() == ours.state_dict().keys()


def test_a_table_that_is_no_sinusoid_was_learned(tmp_path: Path):
    theirs = KINDS["pegasus"].make()
    with torch.no_grad():
        theirs.model.decoder.embed_positions.weight[3, 5] += 0.1
    ours = imported(theirs, tmp_path)
    assert ours.config.positions == "learned"
    assert largest_difference(theirs, ours) <= 1e-5


@pytest.mark.parametrize("family", [f for f in KINDS if f != "llama"])
def test_a_model_without_biases_has_zeros_there(family: str, tmp_path: Path):
    ours, theirs, tensors = exported(replace(our_config(family), bias=False), tmp_path)
    biases = [t for name, t in tensors.items() if name.endswith("bias") and t.shape[-1] != 53]
    assert biases and not any(bias.any() for bias in biases)
    assert largest_difference(theirs, ours) <= 1e-10


# What old files hold


def respelled(family: str, folder: Path, respell: Any) -> tuple[Any, Any]:
    theirs = KINDS[family].make()
    theirs.save_pretrained(folder / "theirs")
    file = folder / "theirs" / "model.safetensors"
    save_file(respell(load_file(file)), file)
    import_model(folder / "theirs", folder / "ours")
    return theirs, load_model(folder / "ours")


def test_the_first_gpt2_files_come_in(tmp_path: Path):
    """Saved without the prefix, and with the causal mask in every layer."""

    def respell(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        masks = {f"h.{i}.attn.bias": torch.ones(1, 1, 29, 29).tril() for i in range(2)}
        return {name.removeprefix("transformer."): t for name, t in tensors.items()} | masks

    assert largest_difference(*respelled("gpt2", tmp_path, respell)) <= 1e-5


def test_the_first_bert_files_come_in(tmp_path: Path):
    """Norms have a gamma and a beta, and heads for other tasks came along."""

    def respell(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        renamed = {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
                "LayerNorm.bias", "LayerNorm.beta"
            ): tensor
            for name, tensor in tensors.items()
        }
        table = tensors["bert.embeddings.word_embeddings.weight"].clone()
        return renamed | {
            "bert.pooler.dense.weight": torch.ones(24, 24),
            "cls.seq_relationship.bias": torch.ones(2),
            "cls.predictions.decoder.weight": table,
        }

    assert largest_difference(*respelled("bert", tmp_path, respell)) <= 1e-5


def test_stored_sinusoids_of_marian_come_in(tmp_path: Path):
    def respell(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        table = KINDS["marian"].make().model.encoder.embed_positions.weight.detach()
        name = "model.{}.embed_positions.weight"
        return tensors | {name.format(tower): table.clone() for tower in ("encoder", "decoder")}

    assert largest_difference(*respelled("marian", tmp_path, respell)) <= 1e-5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_keeps_its_dtype_and_its_bits(dtype: torch.dtype, tmp_path: Path):
    theirs = KINDS["pegasus"].make(dtype=dtype)
    ours = imported(theirs, tmp_path)
    assert ours.tokens.weight.dtype == dtype
    assert ours.config.positions == "sinusoidal"
    export_model(tmp_path / "ours", tmp_path / "again")
    one, again = (load_file(tmp_path / f / "model.safetensors") for f in ("theirs", "again"))
    assert all(torch.equal(tensor, again[name]) for name, tensor in one.items())

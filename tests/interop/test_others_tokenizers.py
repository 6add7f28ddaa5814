"""Tokenizers and ids that were made elsewhere: what other software is given is what clearhead gives
its model, and what cannot be kept is said."""

import json
import logging
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, processors
from tokenizers.models import WordLevel

import clearhead as ch
from clearhead.errors import ClearheadError, ConfigError, DataError, FolderError
from clearhead.inspection.seeing import encoder_ids, subject_of
from clearhead.interop.huggingface.exporting import export_model
from clearhead.interop.huggingface.importing import import_model
from clearhead.interop.huggingface.llama import LLAMA
from clearhead.interop.labels import Labels, read_labels, write_labels
from clearhead.interop.model_folder import TokenIds, load_model, read_description
from clearhead.text.tokenizer import load_tokenizer
from tests.interop.hugging import KINDS

transformers = pytest.importorskip("transformers")
BOTH = replace(ch.preset("tiny-encoder-decoder"), vocab_size=310)
ENCODER = replace(
    ch.preset("tiny-encoder"),
    vocab_size=310,
    embedding_norm=True,
    norm_placement="post",
    n_segments=2,
)
MASK = 273  # behind the last token of the tokenizer
PADDING = {
    "strategy": {"Fixed": 16},
    "direction": "Right",
    "pad_to_multiple_of": None,
    "pad_id": 0,
    "pad_type_id": 0,
    "pad_token": "<pad>",
}


def template(single: str) -> dict[str, Any]:
    made = processors.TemplateProcessing(
        single=single, pair="$A $B", special_tokens=[("<bos>", 1), ("<eos>", 2)]
    )
    return json.loads(made.__getstate__())


BOS, BOS_EOS = template("<bos> $A"), template("<bos> $A <eos>")


def changed(tokenizer: Path, folder: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    content = json.loads((tokenizer / "tokenizer.json").read_text(encoding="utf-8"))
    change(content)
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    "change",
    [
        {"post_processor": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False}},
        {"post_processor": BOS_EOS},
        {"padding": PADDING},
        {
            "truncation": {
                "direction": "Right",
                "max_length": 3,
                "strategy": "LongestFirst",
                "stride": 0,
            }
        },
    ],
    ids=lambda change: next(iter(change)),
)
def test_an_exported_tokenizer_gives_the_ids_that_the_model_is_given_here(
    change: dict[str, Any], tokenizer: Path, tmp_path: Path
):
    folder = changed(tokenizer, tmp_path / "tokenizer", lambda content: content.update(change))
    ch.save_model(ch.build_model(BOTH), tmp_path / "model", tokenizer=folder)
    export_model(tmp_path / "model", tmp_path / "out")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    codec = ch.load(tmp_path / "model").opened.codec
    assert theirs("hello there")["input_ids"] == codec.encode_sources(["hello there"])[0]


def test_an_exported_encoder_has_its_mask_its_labels_and_its_segments(
    tokenizer: Path, tmp_path: Path
):
    def add_mask(content: dict[str, Any]) -> None:
        mask = {**content["added_tokens"][0], "id": MASK, "content": "<mask>"}
        content["added_tokens"].append(mask)

    folder = changed(tokenizer, tmp_path / "tokenizer", add_mask)
    ch.save_model(ch.build_model(ENCODER), tmp_path / "model", tokenizer=folder)
    labels = Labels(mask=MASK, ids={"good": 5, "bad": 6})
    write_labels(tmp_path / "model", labels)
    export_model(tmp_path / "model", tmp_path / "out")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    given = encoder_ids(subject_of(ch.load(tmp_path / "model").opened, ""), "hello <mask> you")
    assert theirs.mask_token_id == MASK and given[-2:] == [MASK, 2]  # the label's place, the end
    assert theirs("hello <mask> you")["input_ids"] == [*given[:-2], 2]
    assert "token_type_ids" in theirs("hello", "there")
    assert read_labels(tmp_path / "out", ENCODER) == labels
    import_model(tmp_path / "out", tmp_path / "again")
    assert read_labels(tmp_path / "again", ENCODER) == labels
    for number, theirs in enumerate(('{"0": "cat", "1": "dog"}', '["cat", "dog"]', "cat")):
        (tmp_path / "out" / "labels.json").write_text(theirs)
        import_model(tmp_path / "out", tmp_path / f"theirs-{number}")
        assert read_labels(tmp_path / f"theirs-{number}", ENCODER) is None
    filled = transformers.pipeline("fill-mask", model=str(tmp_path / "out"))("hello <mask>")
    assert len(filled) == 5


def test_a_tokenizer_with_ids_beyond_the_vocabulary_is_refused(tokenizer: Path, tmp_path: Path):
    def move(content: dict[str, Any]) -> None:
        vocabulary = content["model"]["vocab"]
        highest = max(vocabulary, key=vocabulary.__getitem__)
        vocabulary[highest] = 400

    folder = changed(tokenizer, tmp_path / "tokenizer", move)
    with pytest.raises(FolderError, match="401 tokens and the model vocab_size=310"):
        ch.save_model(ch.build_model(BOTH), tmp_path / "model", tokenizer=folder)


def test_tokens_that_only_their_tokenizer_adds_are_named_at_the_import(
    tokenizer: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    KINDS["marian"].make(
        vocab_size=310, decoder_vocab_size=310, pad_token_id=0, eos_token_id=2,
        bos_token_id=1, decoder_start_token_id=1,
    ).save_pretrained(tmp_path / "theirs")  # fmt: skip
    folder = changed(
        tokenizer, tmp_path / "t", lambda content: content.update(post_processor=BOS_EOS)
    )
    (folder / "tokenizer.json").rename(tmp_path / "theirs" / "tokenizer.json")
    with caplog.at_level(logging.WARNING):
        import_model(tmp_path / "theirs", tmp_path / "ours")
    assert "the tokenizer adds <bos> to every text" in caplog.text


def test_a_decoder_begins_its_prompts_as_its_tokenizer_does_elsewhere(
    tokenizer: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """As Llama's; and one that clearhead begins with nothing is exported with nothing."""
    theirs = KINDS["llama"].make(vocab_size=310, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    theirs.save_pretrained(tmp_path / "theirs")
    folder = changed(tokenizer, tmp_path / "t", lambda content: content.update(post_processor=BOS))
    shutil.copy(folder / "tokenizer.json", tmp_path / "theirs" / "tokenizer.json")
    import_model(tmp_path / "theirs", tmp_path / "ours")
    assert not caplog.text
    elsewhere = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), pad_token="<pad>"
    )
    for name in ("ours", "plain"):
        if name == "plain":
            config = read_description(tmp_path / "ours").model
            ch.save_model(ch.build_model(config), tmp_path / name, tokenizer=folder)
        codec = ch.load(tmp_path / name).opened.codec
        export_model(tmp_path / name, tmp_path / f"{name}-out")
        exported = transformers.AutoTokenizer.from_pretrained(tmp_path / f"{name}-out")
        given = codec.encode_prompts(["hello there"])[0]
        assert exported("hello there")["input_ids"] == given
        assert (given == elsewhere("hello there")["input_ids"]) == (name == "ours")


def test_padding_that_starts_every_text_is_none_in_an_imported_decoder(
    tokenizer: Path, tmp_path: Path
):
    """Its config.json names other ids than its tokenizer uses."""
    theirs = KINDS["llama"].make(vocab_size=310, bos_token_id=0, eos_token_id=2, pad_token_id=1)
    theirs.save_pretrained(tmp_path / "theirs")
    folder = changed(tokenizer, tmp_path / "t", lambda content: content.update(post_processor=BOS))
    shutil.copy(folder / "tokenizer.json", tmp_path / "theirs" / "tokenizer.json")
    import_model(tmp_path / "theirs", tmp_path / "ours")
    found = read_description(tmp_path / "ours")
    assert (found.model.pad_id, found.ids.prompt_start) == (None, 1)


def test_padding_that_also_starts_or_ends_a_text_is_none_in_an_imported_decoder(tmp_path: Path):
    KINDS["gpt2"].make(pad_token_id=2).save_pretrained(tmp_path / "theirs")
    import_model(tmp_path / "theirs", tmp_path / "ours")
    found = read_description(tmp_path / "ours")
    assert found.model.pad_id is None and found.ids.eos == 2


def test_a_decoder_that_starts_with_padding_is_no_m2m100(tmp_path: Path):
    theirs = KINDS["m2m_100"].make(pad_token_id=1, decoder_start_token_id=1)
    theirs.save_pretrained(tmp_path / "theirs")
    with pytest.raises(ConfigError, match="no position in M2M100"):
        import_model(tmp_path / "theirs", tmp_path / "ours")
    config = replace(
        BOTH,
        norm_placement="pre",
        positions="sinusoidal",
        position_spacing="closed",
        first_position=1,
        position_pairs="halves",
        norm_eps=1e-5,
    )
    ch.save_model(ch.build_model(config), tmp_path / "model", ids=TokenIds(decoder_start=0))
    with pytest.raises(ConfigError, match="no position in M2M100"):
        export_model(tmp_path / "model", tmp_path / "out")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_scale_that_half_precision_would_round_is_written_in_single(
    dtype: torch.dtype, tmp_path: Path
):
    config = replace(
        ch.preset("tiny-decoder"),
        d_model=96,
        n_heads=4,
        n_kv_heads=None,
        embedding_scale=True,
        tie_output=True,
        norm="layer",
        feed_forward="gelu",
        positions="learned",
    )
    ch.save_model(ch.build_model(config).to(dtype), tmp_path / "model")
    export_model(tmp_path / "model", tmp_path / "out")
    import_model(tmp_path / "out", tmp_path / "back")
    assert next(load_model(tmp_path / "back").parameters()).dtype == torch.float32


def test_the_tables_of_a_rotation_are_read_under_both_names():
    of = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    default = {"rope_type": "default", "rope_theta": 5e5}
    for name in ("rope_scaling", "rope_parameters"):
        assert LLAMA.read_config({**of, name: default})[0].position_base == 5e5
        with pytest.raises(FolderError, match=f"{name}=.1. must be null or a table"):
            LLAMA.read_config({**of, name: [1]})
        with pytest.raises(FolderError, match=f"{name} rope_type='linear' is not known"):
            LLAMA.read_config({**of, name: {"rope_type": "linear"}})


def test_a_tokenizer_that_knows_few_letters_is_imported_with_its_start(tmp_path: Path):
    bases = Tokenizer(WordLevel({"<pad>": 0, "<s>": 1, "</s>": 2, "A": 3, "C": 4, "G": 5, "T": 6}))
    bases.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="$A $B", special_tokens=[("<s>", 1)]
    )
    KINDS["llama"].make(bos_token_id=1, eos_token_id=2).save_pretrained(tmp_path / "theirs")
    bases.save(str(tmp_path / "theirs" / "tokenizer.json"))
    import_model(tmp_path / "theirs", tmp_path / "ours")
    assert read_description(tmp_path / "ours").ids.prompt_start == 1
    tokenizer = load_tokenizer(tmp_path / "ours" / "tokenizer.json", ("<pad>", "<s>", "</s>"))
    assert tokenizer.encode("A") == [3]
    with pytest.raises(DataError, match="cannot encode a letter of 'a'"):
        tokenizer.encode_batch(["A", "a", "C"])


def test_a_tokenizer_that_lengthens_every_text_is_refused_at_the_import(
    tokenizer: Path, tmp_path: Path
):
    longer = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    twenty = {"type": "Sequence", "normalizers": [longer] * 20}
    KINDS["llama"].make(vocab_size=310).save_pretrained(tmp_path / "theirs")
    folder = changed(tokenizer, tmp_path / "t", lambda content: content.update(normalizer=twenty))
    shutil.copy(folder / "tokenizer.json", tmp_path / "theirs" / "tokenizer.json")
    with pytest.raises(ClearheadError, match="1048576 times as long, and 64 is the limit"):
        import_model(tmp_path / "theirs", tmp_path / "ours")

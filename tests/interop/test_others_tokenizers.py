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
from clearhead.inspection.decode_for_page import encoder_ids, subject_of
from clearhead.interop.huggingface.exporting import export_model
from clearhead.interop.huggingface.importing import import_model
from clearhead.interop.huggingface.llama import LLAMA
from clearhead.interop.labels import Labels, read_labels, write_labels
from clearhead.interop.model_folder import TokenIds, load_model, read_description
from clearhead.text.tokenizer import load_tokenizer, tokenizer_from_json
from tests.interop.hugging import KINDS
from tests.security.test_tokenizers import character_map

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
    with pytest.raises(DataError, match="cannot encode a character of 'a'"):
        tokenizer.encode_batch(["A", "a", "C"])


def test_a_tokenizer_that_lengthens_every_text_is_refused_at_the_import(
    tokenizer: Path, tmp_path: Path
):
    longer = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    twenty = {"type": "Sequence", "normalizers": [longer] * 20}
    KINDS["llama"].make(vocab_size=310).save_pretrained(tmp_path / "theirs")
    folder = changed(tokenizer, tmp_path / "t", lambda content: content.update(normalizer=twenty))
    shutil.copy(folder / "tokenizer.json", tmp_path / "theirs" / "tokenizer.json")
    with pytest.raises(ClearheadError, match="2,097,152 times as long, and 128 is the limit"):
        import_model(tmp_path / "theirs", tmp_path / "ours")


PATTERNS = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama 3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen 2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen 3.5": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "tekken": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "gpt-4o": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "kimi": r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    "bailing": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    "deepseek 3": "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
    "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*"
    "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
    "deepseek 3, asian": "[一-龥\u3040-ゟ゠-ヿ]+",
    "deepseek llm": r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽΈ-ΊΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽ]+",
    "deepseek llm, marks": r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
    "deepseek llm, end": r"\s+$",
    "deepseek coder": r"\s?\p{P}+",
    "tiny aya": r"\d{1,3}(?=(?:\d{3})*\b)",
    "falcon": "[0-9][0-9][0-9]",
    "bloom": r" ?[^(\s|[.,!?…。，、।۔،])]+",
    "chameleon": "<sentinel:[0-9]+>",
    "chameleon, image": "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
    "clip": r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]"
    r"|[^\s\p{L}\p{N}]+",
    "laguna": r"[^\n]+|[\n]+",
}
"""Of pre-tokenizers in Hugging Face folders."""


def in_bytes(pattern: str) -> dict[str, Any]:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    steps = [split | {"invert": False}, level | {"use_regex": False}]
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}


def normalised(*steps: dict[str, Any] | str, **others: Any) -> dict[str, Any]:
    return {"normalizer": {"type": "Sequence", "normalizers": list(steps)}, **others}


def replaced(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
BLANKS, LINES = {"Regex": " {2,}"}, {"Regex": r"\s{2,}|[\n\r\t]"}
UNIGRAM = {"pre_tokenizer": METASPACE, "decoder": METASPACE}
BERT = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}
OF_FAMILIES = {
    "llama 2": normalised(
        {"type": "Prepend", "prepend": "▁"},
        replaced({"String": " "}, "▁"),
        pre_tokenizer=None,
        decoder={
            "type": "Sequence",
            "decoders": [
                replaced({"String": "▁"}, " "),
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
    ),
    "gemma": {"normalizer": replaced({"String": " "}, "▁")},
    "t5": normalised("map", replaced(BLANKS, "▁"), **UNIGRAM),
    "xlm-roberta, marian, nllb, mbart, pegasus": normalised(
        "map", replaced(BLANKS, " "), **UNIGRAM
    ),
    "deberta 2": normalised(
        {"type": "Strip", "strip_left": True, "strip_right": True},
        "map",
        replaced(LINES, " "),
        **UNIGRAM,
    ),
    "albert": normalised(
        replaced({"String": "``"}, '"'),
        replaced({"String": "''"}, '"'),
        {"type": "NFKD"},
        {"type": "StripAccents"},
        {"type": "Lowercase"},
        "map",
        replaced(BLANKS, " "),
        **UNIGRAM,
    ),
    "bert": {
        "normalizer": BERT | {"strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "post_processor": BOS_EOS,
    },
    "clip": normalised({"type": "NFC"}, replaced({"Regex": r"\s+"}, " "), {"type": "Lowercase"}),
    "roberta": {
        "post_processor": {
            "type": "RobertaProcessing",
            "sep": ["<eos>", 2],
            "cls": ["<bos>", 1],
            "trim_offsets": True,
            "add_prefix_space": True,
        }
    },
    "modern bytes": {"normalizer": {"type": "ByteLevel"}, "pre_tokenizer": None},
}
TEXTS = ["It's 12,345 km to  Köln!\n\n", "红楼梦 hello\tWORLD'LL don’t", "", " a ﷺ"]


@pytest.mark.parametrize("change", OF_FAMILIES.values(), ids=OF_FAMILIES)
def test_the_tokenizers_of_other_families_open_and_encode_as_their_library_does(
    change: dict[str, Any], tokenizer: Path
):
    content = json.loads((tokenizer / "tokenizer.json").read_text(encoding="utf-8")) | change
    # The map of sentencepiece, which takes 320 kB, in small.
    small = {
        "type": "Precompiled",
        "precompiled_charsmap": character_map("ﷺ", "صلى الله عليه وسلم"),
    }
    if "map" in (steps := (content["normalizer"] or {}).get("normalizers", [])):
        content["normalizer"]["normalizers"] = [small if s == "map" else s for s in steps]
    text = json.dumps(content)
    theirs = Tokenizer.from_str(text)
    ours = tokenizer_from_json(text)
    assert ours.encode_batch(TEXTS) == [
        theirs.encode(each, add_special_tokens=False).ids for each in TEXTS
    ]


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_the_patterns_of_other_families_open_and_divide_as_their_library_does(
    pattern: str, tokenizer: Path
):
    content = json.loads((tokenizer / "tokenizer.json").read_text(encoding="utf-8"))
    text = json.dumps(content | in_bytes(pattern))
    theirs = Tokenizer.from_str(text)
    ours = tokenizer_from_json(text)
    assert ours.encode_batch(TEXTS) == [theirs.encode(each).ids for each in TEXTS]

"""What you read is what decodes: the commands run the loaded model's own layers, nothing else."""

import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from clearhead.cli import main
from clearhead.config import ModelConfig
from clearhead.interop.model_folder import save_model
from clearhead.models import build_model
from clearhead.parts.attention import MultiHeadAttention
from clearhead.stacks.decoder import DecoderLayer
from clearhead.text.train import train_bpe

SIZES = {"d_model": 16, "n_heads": 2, "d_ff": 32, "n_layers": 2, "max_length": 40, "init_std": 0.3}


@contextmanager
def counted_positions() -> Iterator[dict[type, int]]:
    """How many positions have passed through each layer's and each attention's own forward."""
    counts = {DecoderLayer: 0, MultiHeadAttention: 0}

    def counting(kind):
        forward = kind.forward

        def count(self, x, *others, **named):
            counts[kind] += x.shape[0] * x.shape[1]
            return forward(self, x, *others, **named)

        return patch.object(kind, "forward", count)

    with counting(DecoderLayer), counting(MultiHeadAttention):
        yield counts


@pytest.mark.parametrize("family", ["encoder-decoder", "decoder"])
@pytest.mark.parametrize("strategy", ["one", "many"])
def test_every_decoded_token_passes_through_the_layers_of_the_loaded_model(
    tmp_path: Path, monkeypatch, capsys, family: str, strategy: str
):
    tokenizer = train_bpe(["ein Hund läuft", "a dog runs on the green grass"] * 9, 300)
    (tmp_path / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    model = build_model(ModelConfig(family=family, vocab_size=tokenizer.vocab_size, **SIZES))
    save_model(model, tmp_path / "model", tokenizer=tmp_path)
    options = {
        ("encoder-decoder", "one"): ("translate", "--beam", "1"),
        ("encoder-decoder", "many"): ("translate", "--beam", "3"),
        ("decoder", "one"): ("generate", "--greedy"),
        ("decoder", "many"): ("generate", "--seed", "4"),
    }[family, strategy]
    verb, *rest = options
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"ein Hund\na dog runs\n")))
    with counted_positions() as counts:
        settings = ["--max-new", "6", "--format", "jsonl", *rest]
        assert main([verb, str(tmp_path / "model"), *settings]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    texts = [(row.get("translations") or row["texts"])[0] for row in rows]
    # The last token of a text is chosen, and need not be read any more.
    n_read = sum(len(text["tokens"]) - 1 for text in texts)
    n_layers, width = 2, 3 if options[-1] == "3" else 1
    if family == "encoder-decoder":
        n_source = [len(tokenizer.encode(text)) + 1 for text in ("ein Hund", "a dog runs")]
        n_encoded, n_given = len(n_source) * max(n_source), 2  # padding, and the start
    else:
        prompts = [len(tokenizer.encode(text)) for text in ("ein Hund", "a dog runs")]
        n_encoded, n_given = 0, len(prompts) * max(prompts)
    in_decoder = counts[DecoderLayer] // n_layers - n_given
    if width == 1:
        assert in_decoder == n_read
    else:
        assert n_read < in_decoder <= width * 5 * len(texts)
    per_layer = 2 if family == "encoder-decoder" else 1  # causal, and cross
    expected = counts[DecoderLayer] * per_layer + n_layers * n_encoded
    assert counts[MultiHeadAttention] == expected

"""The vocabulary of the peers that use sentencepiece; imported inside their environments."""

# pyright: reportMissingImports=false

from pathlib import Path

import sentencepiece

MODEL, TOKENS = "sp.model", "sp.vocab.txt"


def build_vocabulary(data: Path, size: int) -> None:
    """One for both sides, as JoeyNMT's own script makes it."""
    if (data / TOKENS).exists():
        return
    sentencepiece.SentencePieceTrainer.train(
        input=[str(data / "train.de"), str(data / "train.en")],
        model_prefix=str(data / "sp"),
        model_type="bpe",
        vocab_size=size,
        character_coverage=1.0,
        unk_id=0,
        pad_id=1,
        bos_id=2,
        eos_id=3,
    )
    rows = (data / "sp.vocab").read_text(encoding="utf-8").splitlines()
    text = "".join(row.split("\t")[0] + "\n" for row in rows)
    (data / TOKENS).write_text(text, encoding="utf-8")

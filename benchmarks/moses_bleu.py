"""BLEU as papers on Multi30k publish it: both sides in lower case and cut by Moses's tokenizer.

Needs sacremoses (`pip install sacremoses`), Moses's scripts in Python, which no other part of the
project uses."""

# pyright: reportMissingImports=false

from sacrebleu.metrics.bleu import BLEU


def moses_bleu(translations: list[str], references: list[str], language: str) -> float:
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    normalizer, tokenizer = MosesPunctNormalizer(language), MosesTokenizer(language)

    def cut(text: str) -> str:
        return " ".join(tokenizer.tokenize(normalizer.normalize(text.lower()), escape=False))

    # Without a tokenizer of sacrebleu's own, this is what Moses's multi-bleu.perl computes.
    metric = BLEU(tokenize="none", force=True)
    score = metric.corpus_score([cut(line) for line in translations], [list(map(cut, references))])
    return score.score

"""The score of a recipe's model once more, by transformers, from the folder that was exported."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
)

from clearhead.config import BatchConfig
from clearhead.data.batches import IGNORED, MaskedBatch
from clearhead.data.corpus import Corpus, open_corpus
from clearhead.data.loader import Loader
from clearhead.evaluation.perplexity import windows
from clearhead.evaluation.translation import exact_share, translation_scores

BATCH = 32
MAX_NEW = 256  # as ours


def translated(folder: Path, sources: list[str], beam: int, window: int) -> list[str]:
    """By `generate`, with the settings that are our defaults: an average over the length, an end
    when as many texts as the beam is wide have ended, sources cut to what the model takes."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    rows = [tokenizer(line, add_special_tokens=False)["input_ids"] for line in sources]
    rows = [[*row[: window - 1], model.config.eos_token_id] for row in rows]
    order = sorted(range(len(rows)), key=lambda place: len(rows[place]))
    texts = [""] * len(rows)
    for first in range(0, len(order), BATCH):
        places = order[first : first + BATCH]
        widest = max(len(rows[place]) for place in places)
        ids = torch.full((len(places), widest), model.config.pad_token_id)
        real = torch.zeros_like(ids)
        for row, place in enumerate(places):
            ids[row, : len(rows[place])] = torch.tensor(rows[place])
            real[row, : len(rows[place])] = 1
        with torch.inference_mode():
            written = model.generate(
                ids, attention_mask=real, num_beams=beam, do_sample=False, length_penalty=1.0,
                early_stopping=True, max_new_tokens=min(MAX_NEW, window),
            )  # fmt: skip
        decoded = tokenizer.batch_decode(written, skip_special_tokens=True)
        for place, text in zip(places, decoded):
            texts[place] = text
    return texts


def bits_per_byte(folder: Path, texts: list[str], end: bool, window: int) -> float:
    """As `clearhead evaluate` reads a run's split: one stream, windows that overlap by half."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    ends = [model.config.eos_token_id] if end else []
    ids: list[int] = []
    for text in texts:
        ids += tokenizer(text, add_special_tokens=False)["input_ids"] + ends
    n_bytes = sum(len(text.encode()) + len(ends) for text in texts)
    n_bytes -= len(tokenizer.decode(ids[:1]).rstrip("\ufffd").encode())
    nats = 0.0
    with torch.inference_mode():
        for start, first, last in windows(len(ids), window, max(1, window // 2)):
            row = torch.tensor(ids[start:last])
            log_probs = model(row[None, :-1]).logits[0, first - start - 1 :].log_softmax(-1)
            nats -= float(log_probs.gather(1, row[first - start :, None]).double().sum())
    return nats / math.log(2) / n_bytes


def encoder_batches(corpus: Corpus, config: BatchConfig) -> Iterator[MaskedBatch]:
    """Of the split that `clearhead evaluate` takes."""
    split = "test" if "test" in corpus.manifest.splits else "valid"
    for batch in Loader(corpus, config, split=split, epochs=1):
        assert isinstance(batch, MaskedBatch)
        yield batch


def masked_loss(folder: Path, prepared: Path, window: int) -> float:
    """On the tokens that `clearhead evaluate` masks."""
    model = AutoModelForMaskedLM.from_pretrained(folder).eval()
    config = BatchConfig(seed=0, length=window, batch_size=BATCH, p_mask=0.15)
    nats, n_tokens = 0.0, 0
    with torch.inference_mode():
        for batch in encoder_batches(open_corpus(prepared), config):
            chosen = batch.targets != IGNORED
            logits = model(batch.inputs).logits[chosen]
            nats += cross_entropy(logits, batch.targets[chosen], reduction="sum").item()
            n_tokens += len(logits)
    return nats / n_tokens


def accuracy(folder: Path, prepared: Path) -> float:
    """The likelier label of each text, where the mask stands."""
    model = AutoModelForMaskedLM.from_pretrained(folder).eval()
    corpus = open_corpus(prepared)
    ids = torch.tensor(list(corpus.labels.values()))
    n_right = n = 0
    with torch.inference_mode():
        for batch in encoder_batches(corpus, BatchConfig(batch_tokens=4096)):
            real = (batch.inputs != model.config.pad_token_id).long()
            at = batch.targets != IGNORED
            logits = model(batch.inputs, attention_mask=real).logits[at]
            n_right += int((ids[logits[:, ids].argmax(1)] == batch.targets[at]).sum())
            n += len(logits)
    return n_right / n


def score_there(
    out: Path,
    documents: list[tuple[str, ...]],
    prepared: Path,
    *,
    task: str,
    beam: int,
    tokenize: str,
    exact: bool,
    end: bool,
    window: int,
) -> dict[str, Any]:
    if task == "pairs":
        sources, references = ([texts[side] for texts in documents] for side in (0, 1))
        texts = translated(out, [source.strip() for source in sources], beam, window)
        if exact:
            return {"scores": {"exact": exact_share(texts, references)}}
        metrics = translation_scores(texts, references, n_resamples=0, tokenize=tokenize)
        return {"scores": {metric.name: round(metric.value, 4) for metric in metrics}}
    if task == "language-model":
        texts = [texts[0] for texts in documents]
        return {"scores": {"bits_per_byte": bits_per_byte(out, texts, end, window)}}
    if task == "masked-lm":
        return {"scores": {"loss": masked_loss(out, prepared, window)}}
    return {"scores": {"accuracy": accuracy(out, prepared)}}

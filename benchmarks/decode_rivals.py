"""The same weights in Hugging Face and CTranslate2, and the matrix products alone.

Each contestant is a function: token ids and a beam width in, the tokens written out.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.interop.ctranslate2.exporting import export_ctranslate2
from clearhead.interop.huggingface.exporting import export_model
from clearhead.interop.model_folder import read_description

Rows = list[list[int]]
Contestant = Callable[[Rows, int], Rows]
PAD = 0


def hugging_face(folder: Path, out: Path, max_new: int, batch: int) -> Contestant:
    """`generate` on the exported folder, in batches sorted by length as its users would sort."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    export_model(folder, out, check=False)
    is_pair = transformers.AutoConfig.from_pretrained(out).is_encoder_decoder
    auto = transformers.AutoModelForSeq2SeqLM if is_pair else transformers.AutoModelForCausalLM
    model: Any = auto.from_pretrained(out).eval()

    def write(rows: Rows, beam: int) -> Rows:
        written: Rows = []
        for first in range(0, len(rows), batch):
            part = rows[first : first + batch]
            longest = max(map(len, part))
            filler = [[PAD] * (longest - len(row)) for row in part]
            padded = [row + f if is_pair else f + row for row, f in zip(part, filler)]
            ids = torch.tensor(padded)
            out = model.generate(
                ids,
                attention_mask=(ids != PAD).long(),
                num_beams=beam,
                do_sample=False,
                max_new_tokens=max_new,
                min_new_tokens=max_new,
                early_stopping=True,
                pad_token_id=PAD,
            )
            written += out[:, 1 if is_pair else longest :].tolist()
        return written

    return write


def ctranslate2_pair(
    folder: Path, out: Path, max_new: int, threads: int, compute_type: str = "float32"
) -> Contestant:
    import ctranslate2

    names = _export(folder, out)
    translator = ctranslate2.Translator(
        str(out), compute_type=compute_type, intra_threads=threads, inter_threads=1
    )
    ids = {name: number for number, name in enumerate(names)}

    def write(rows: Rows, beam: int) -> Rows:
        results = translator.translate_batch(
            [[names[i] for i in row[:-1]] for row in rows],  # it adds the end itself
            beam_size=beam,
            max_batch_size=2048,
            batch_type="tokens",
            max_decoding_length=max_new,
            min_decoding_length=max_new,
        )
        return [[ids[token] for token in result.hypotheses[0]] for result in results]

    return write


def ctranslate2_decoder(
    folder: Path, out: Path, max_new: int, threads: int, compute_type: str = "float32"
) -> Contestant:
    import ctranslate2

    names = _export(folder, out)
    generator = ctranslate2.Generator(
        str(out), compute_type=compute_type, intra_threads=threads, inter_threads=1
    )

    def write(rows: Rows, beam: int) -> Rows:
        results = generator.generate_batch(
            [[names[i] for i in row] for row in rows],
            beam_size=beam,
            max_batch_size=2048,
            batch_type="tokens",
            max_length=max_new,
            min_length=max_new,
            include_prompt_in_result=False,
        )
        return [list(result.sequences_ids[0]) for result in results]

    return write


def _export(folder: Path, out: Path) -> list[str]:
    """Without a tokenizer: tokens are called by their numbers."""
    export_ctranslate2(folder, out, check=False)
    return [str(number) for number in range(read_description(folder).model.output_vocab_size)]


Product = tuple[Callable[[Tensor, Tensor], Tensor], Tensor, Tensor]


def matmul_seconds(
    config: ModelConfig, rows: Rows, beam: int, max_new: int, clock: Callable[[], float]
) -> float:
    """The matrix products of one call alone, in their order, each layer with matrices of its own:
    like the model, they come from memory at every step. An encoder reads the sources once; then
    `max_new` steps of `beam` hypotheses for each row, each looking at the mean number of keys."""
    d, ff, heads = config.d_model, config.d_ff, config.n_heads
    d_head, longest, n = d // heads, max(map(len, rows)), len(rows)
    pair = config.family == "encoder-decoder"
    n_read, n_step = n * longest, n * beam
    seen = max_new // 2 if pair else longest + max_new // 2
    read: list[Product] = []
    step: list[Product] = []
    for _ in range(config.n_layers):
        read += _products((n_read, d, 3 * d), (n_read, d, d), (n_read, d, ff), (n_read, ff, d))
        read += _attention(n * heads, longest, longest, d_head)
    for _ in range(config.decoder_layers):
        step += _products((n_step, d, 3 * d), (n_step, d, d), (n_step, d, ff), (n_step, ff, d))
        step += _attention(n_step * heads, 1, seen, d_head)
        if pair:
            read += _products((n_read, d, 2 * d))
            step += _products((n_step, d, d), (n_step, d, d))
            step += _attention(n * heads, beam, longest, d_head)
    step += _products((n_step, d, config.output_vocab_size))
    return _timed(read, clock) + max_new * _timed(step, clock)


def _products(*shapes: tuple[int, int, int]) -> list[Product]:
    return [(torch.mm, torch.randn(m, k), torch.randn(k, n)) for m, k, n in shapes]


def _attention(batch: int, queries: int, keys: int, d_head: int) -> list[Product]:
    q, k = torch.randn(batch, queries, d_head), torch.randn(batch, d_head, keys)
    w, v = torch.randn(batch, queries, keys), torch.randn(batch, keys, d_head)
    return [(torch.bmm, q, k), (torch.bmm, w, v)]


def _timed(products: list[Product], clock: Callable[[], float]) -> float:
    best = float("inf")
    with torch.inference_mode():
        for _ in range(6):
            start = clock()
            for product, a, b in products:
                product(a, b)
            best = min(best, clock() - start)
    return best

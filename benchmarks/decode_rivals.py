"""The same weights in Hugging Face and CTranslate2, and the matrix products alone.

Each contestant is a function: token ids and a beam width in, the tokens written out.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.interop.huggingface.exporting import export_model
from clearhead.models import CausalLM, Seq2Seq
from clearhead.parts.positions import LearnedPositions, SinusoidalPositions

Rows = list[list[int]]
Contestant = Callable[[Rows, int], Rows]
PAD, BOS, EOS = 0, 1, 2


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


def ctranslate2_pair(model: Seq2Seq, folder: Path, max_new: int, threads: int) -> Contestant:
    """Its specification filled with our weights: post-norm, ReLU, sinusoids, one table."""
    import ctranslate2
    from ctranslate2.specs import TransformerSpec

    config = model.config
    layers = (config.n_layers, config.decoder_layers)
    spec: Any = TransformerSpec.from_config(layers, config.n_heads, pre_norm=False)
    table = model.tokens.weight
    for side, tower, embedding in (
        (spec.encoder, model.encoder, model.embedding),
        (spec.decoder, model.decoder, model.target_embedding),
    ):
        embeddings = side.embeddings
        (embeddings[0] if isinstance(embeddings, list) else embeddings).weight = _array(table)
        side.scale_embeddings = True
        positions = embedding.positions
        assert isinstance(positions, SinusoidalPositions)
        side.position_encodings.encodings = _array(positions.table)
        for theirs, ours in zip(side.layer, tower.layers):
            _fill_layer(theirs, ours)
    spec.decoder.projection.weight = _array(table)
    _save(spec, config, folder)
    translator = ctranslate2.Translator(str(folder), intra_threads=threads, inter_threads=1)
    names = _names(config)
    ids = {name: number for number, name in enumerate(names)}

    def write(rows: Rows, beam: int) -> Rows:
        results = translator.translate_batch(
            [[names[i] for i in row] for row in rows],
            beam_size=beam,
            max_batch_size=2048,
            batch_type="tokens",
            max_decoding_length=max_new,
            min_decoding_length=max_new,
        )
        return [[ids[token] for token in result.hypotheses[0]] for result in results]

    return write


def ctranslate2_decoder(model: CausalLM, folder: Path, max_new: int, threads: int) -> Contestant:
    """A GPT-2, by its specification too: its converter asks for a tokenizer that it knows."""
    import ctranslate2
    from ctranslate2.specs import TransformerDecoderModelSpec, common_spec

    config = model.config
    spec: Any = TransformerDecoderModelSpec.from_config(
        config.n_layers, config.n_heads, pre_norm=True, activation=common_spec.Activation.GELUTanh
    )
    side = spec.decoder
    side.embeddings.weight = _array(model.tokens.weight)
    side.scale_embeddings = False
    positions = model.embedding.positions
    assert isinstance(positions, LearnedPositions)
    side.position_encodings.encodings = _array(positions.weight)
    for theirs, ours in zip(side.layer, model.decoder.layers):
        _fill_layer(theirs, ours)
    _fill_norm(side.layer_norm, model.decoder.norm)
    side.projection.weight = _array(model.tokens.weight)
    names = _names(config)
    spec.register_vocabulary(names)
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = (
        names[1],
        names[2],
        names[0],
    )
    _write(spec, folder)
    generator = ctranslate2.Generator(str(folder), intra_threads=threads, inter_threads=1)

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


def _fill_layer(theirs: Any, ours: Any) -> None:
    attention = ours.self_attention
    _fill_linear(theirs.self_attention.linear[0], attention.query, attention.key, attention.value)
    _fill_linear(theirs.self_attention.linear[1], attention.output)
    _fill_norm(theirs.self_attention.layer_norm, ours.around_self_attention.norm)
    if getattr(ours, "cross_attention", None) is not None:
        cross = ours.cross_attention
        _fill_linear(theirs.attention.linear[0], cross.query)
        _fill_linear(theirs.attention.linear[1], cross.key, cross.value)
        _fill_linear(theirs.attention.linear[2], cross.output)
        _fill_norm(theirs.attention.layer_norm, ours.around_cross_attention.norm)
    _fill_linear(theirs.ffn.linear_0, ours.feed_forward.up)
    _fill_linear(theirs.ffn.linear_1, ours.feed_forward.down)
    _fill_norm(theirs.ffn.layer_norm, ours.around_feed_forward.norm)


def _fill_linear(theirs: Any, *ours: nn.Linear) -> None:
    theirs.weight = _array(torch.cat([linear.weight for linear in ours]))
    theirs.bias = _array(torch.cat([linear.bias for linear in ours]))


def _fill_norm(theirs: Any, ours: Any) -> None:
    theirs.gamma, theirs.beta = _array(ours.weight), _array(ours.bias)


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().float().contiguous().numpy()


def _names(config: ModelConfig) -> list[str]:
    return ["<pad>", "<bos>", "<eos>", *(f"t{i}" for i in range(3, config.vocab_size))]


def _save(spec: Any, config: ModelConfig, folder: Path) -> None:
    names = _names(config)
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    settings = spec.config
    settings.bos_token, settings.eos_token, settings.unk_token = "<bos>", "<eos>", "<pad>"
    settings.decoder_start_token = "<bos>"
    settings.add_source_bos = settings.add_source_eos = False
    _write(spec, folder)


def _write(spec: Any, folder: Path) -> None:
    spec.validate()
    spec.optimize(quantization="float32")
    folder.mkdir(parents=True)
    spec.save(str(folder))


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

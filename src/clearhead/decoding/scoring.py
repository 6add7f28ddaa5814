"""Computes how likely given texts are, token by token, with one pass over each text."""

from collections.abc import Sequence

import torch
from torch import Tensor

from clearhead.config.decode import Start
from clearhead.decoding.cached import GenerativeModel, Ids, evaluating, in_full, padded
from clearhead.decoding.codec import Codec
from clearhead.decoding.inputs import checked_ids, name_of
from clearhead.decoding.results import Output, Scored
from clearhead.errors import InputError, function, setting
from clearhead.models import Seq2Seq
from clearhead.models.inputs import RealGiven
from clearhead.parts.recorder import Recorder

MAX_TOKENS = 4096
"""The highest number of tokens of a batch, including padding."""


def score(
    model: GenerativeModel,
    inputs: Sequence[Ids],
    targets: Sequence[Ids],
    *,
    start_id: int | None = 1,
    max_tokens: int = MAX_TOKENS,
) -> list[list[float]]:
    """Compute log p of each target token, given the input before it: the prompt, or the source,
    after which the decoder starts with `start_id`. There is one pass over each text, without a
    cache."""
    if len(inputs) != len(targets):
        raise InputError(
            f"there are {len(inputs)} inputs and {len(targets)} targets; give one target for each"
        )
    pairs = [_checked(model, i, pair, start_id) for i, pair in enumerate(zip(inputs, targets))]
    # Both sides of a batch are as wide as its longest pair, whichever side is longer.
    width = [max(len(source), len(first) + len(target)) for source, first, target in pairs]
    order = sorted(range(len(pairs)), key=width.__getitem__)
    scores: list[list[float]] = [[] for _ in pairs]
    while order:
        rows = [order.pop()]  # the longest first: later batches need no more memory than the first
        while order and (len(rows) + 1) * width[rows[0]] <= max_tokens:
            rows.append(order.pop())
        for row, log_probs in zip(rows, _score_batch(model, [pairs[row] for row in rows])):
            scores[row] = log_probs
    return scores


Fed = tuple[list[int], list[int], list[int]]  # source or nothing, what is fed first, target


def _checked(
    model: GenerativeModel, index: int, pair: tuple[Ids, Ids], start_id: int | None
) -> Fed:
    config = model.config
    context, target = pair
    # A target that a model generated may hold any token, even the pad id.
    target = checked_ids(target, config.output_vocab_size, None, "target", index) if target else []
    if isinstance(model, Seq2Seq):
        if start_id is None:
            raise InputError("start_id=None leaves the decoder nothing to start from; give an id")
        source = checked_ids(context, config.vocab_size, config.pad_id, "source", index)
        source, first = source, [start_id]
    else:
        source, first = [], checked_ids(context, config.vocab_size, config.pad_id, "prompt", index)
    n_fed = max(len(first) + len(target) - 1, len(source))
    if n_fed > config.max_length:
        raise InputError(
            f"pair {index} has {n_fed} tokens, more than max_length={config.max_length}; cut it"
        )
    return source, first, list(target)


@torch.inference_mode()
def _score_batch(model: GenerativeModel, pairs: Sequence[Fed]) -> list[list[float]]:
    device = model.tokens.weight.device
    fed, real = padded([(first + target)[:-1] or first for _, first, target in pairs], device)
    with evaluating(model.modules()):
        if isinstance(model, Seq2Seq):
            sources, source_real = padded([source for source, _, _ in pairs], device)
            hidden = model.decode_hidden(
                fed, model.encode(sources, real=_given(source_real)), real=_given(real)
            )
        else:
            hidden = model.hidden(fed, real=_given(real))
    rows: list[list[float]] = []
    for row, (_, first, target) in zip(hidden, pairs):
        # Scores for a whole vocabulary exist only here, and only for one text at a time.
        states = row[len(first) - 1 : len(first) - 1 + len(target)][None]
        table = model.target_table if isinstance(model, Seq2Seq) else model.tokens
        scores = in_full(model.output(states, table)[0])
        ids = torch.tensor(target, dtype=torch.long, device=device)[:, None]
        chosen = scores.gather(1, ids)[:, 0] - scores.logsumexp(dim=1)
        rows.append(chosen.clamp(max=0).tolist())
    return rows


def _given(real: Tensor | None) -> RealGiven:
    return "all" if real is None else real


def score_texts(
    model: GenerativeModel,
    codec: Codec,
    texts: Sequence[str],
    targets: Sequence[str] | None = None,
    *,
    start: Start = "auto",
    names: Sequence[str] | None = None,
) -> list[Scored]:
    """Compute log p of each token: of `targets`, given the texts as sources, for a translator; of
    the texts themselves for a language model. Without a `start`, the first token of a text is not
    scored. An empty text has no tokens."""
    seq2seq = isinstance(model, Seq2Seq)
    pairs = seq2seq or codec.ids.target_start is not None
    # A language model can continue a text of blanks, but a translator cannot translate it.
    filled = [index for index, text in enumerate(texts) if (text.strip() if pairs else text)]
    if pairs:
        if start != "auto":
            raise InputError(f"{setting('start', start)} is for language models; leave it out")
        if targets is None or len(targets) != len(texts):
            raise InputError("a translator scores pairs; give a target for each text")
        for index in set(range(len(texts))) - set(filled):
            if targets[index].strip():
                raise InputError(
                    f"{name_of(names, index)} is empty, but its target is not; leave the pair "
                    "out, since an empty text has no translation"
                )
        contexts = codec.encode_sources([texts[index] for index in filled])
        scored_tokens = codec.encode_targets(
            [targets[index] for index in filled], [texts[index] for index in filled]
        )
        together = max if seq2seq else sum
        lengths = [together(map(len, pair)) for pair in zip(contexts, scored_tokens)]
    else:
        ids = codec.encode_prompts([texts[index] for index in filled], start)
        contexts, scored_tokens = [tokens[:1] for tokens in ids], [tokens[1:] for tokens in ids]
        lengths = [len(tokens) for tokens in ids]
    longest = model.config.max_length
    for index, length in zip(filled, lengths):
        if length > longest:
            raise InputError(
                f"{name_of(names, index)} has more tokens than the model takes ({longest}); split "
                f"it, or measure whole texts with {function('evaluate')}"
            )
    scores = score(model, contexts, scored_tokens, start_id=codec.ids.decoder_start)
    scored = {
        index: Scored(tokens=tokens, log_probs=log_probs)
        for index, tokens, log_probs in zip(filled, scored_tokens, scores)
    }
    nothing = Scored(tokens=[], log_probs=[])
    return [scored.get(index, nothing) for index in range(len(texts))]


@torch.inference_mode()
def attention_of(
    model: GenerativeModel, given: Ids, output: Output, *, start_id: int | None = 1
) -> Recorder:
    """Return the attention with which a text was decoded: every layer's weights, with a row for
    each token that the model read (it did not read the last token of the text). One pass over the
    whole text computes it."""
    source, first, target = _checked(model, 0, (given, output.tokens), start_id)
    recorder = Recorder()
    fed = torch.tensor([(first + target)[:-1] or first], device=model.tokens.weight.device)
    with evaluating(model.modules()):
        if isinstance(model, Seq2Seq):
            memory = model.encode(fed.new_tensor([source]), real="all", recorder=recorder)
            model.decode(fed, memory, real="all", recorder=recorder)
        else:
            model(fed, real="all", recorder=recorder)
    return recorder

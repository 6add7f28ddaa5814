"""The proof that a CTranslate2 folder computes what our model does. CTranslate2 gives no logits but
log probabilities: of each of the random tokens that it is shown, and of the texts that it writes by
itself, token by token, as a server would."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.interop.certificate import Certificate, load_in_fp64, longest_probe, versions_of
from clearhead.interop.model_folder import Description, TokenIds
from clearhead.models import CausalLM, Model, Seq2Seq

LIBRARY = "ctranslate2"
LIMIT = 1e-3
"""Theirs is computed in fp32."""
USUAL = 16


class Claim(NamedTuple):
    """What CTranslate2 says of a text: the log probability of each token, or their sum."""

    source: list[int]
    before: list[int]
    text: list[int]
    scores: list[float]


class Names(NamedTuple):
    """CTranslate2 takes and gives tokens by name."""

    source: list[str]
    target: list[str]


def certify(
    model_folder: Path, out: Path, description: Description, names: Names, architecture: str
) -> Certificate:
    """One model is in memory at a time."""
    config, ids = description.model, description.ids
    ask = _ask_pair if config.family == "encoder-decoder" else _ask_decoder
    claims = ask(out, config, ids, names)
    model = load_in_fp64(model_folder)
    return replace(
        unchecked(architecture, ""),
        unchecked=None,
        largest_difference=max(_difference(model, claim) for claim in claims),
        n_tokens=sum(len(claim.text) for claim in claims),
        compared=("random", "padded", "longest", "written by itself"),
    )


def unchecked(architecture: str, reason: str) -> Certificate:
    return Certificate(
        family="CTranslate2",
        architecture=architecture,
        library=LIBRARY,
        versions=versions_of("torch", LIBRARY, "tokenizers"),
        measured="log probability",
        limit=LIMIT,
        unchecked=reason,
    )


def _ask_pair(out: Path, config: ModelConfig, ids: TokenIds, names: Names) -> list[Claim]:
    import ctranslate2

    assert ids.eos is not None and ids.decoder_start is not None
    room = longest_probe(config) - 1  # beside the start, and the end of a source
    sources = _rows(config.vocab_size, config, ids, room, seed=0)[::-1]
    texts = _rows(config.output_vocab_size, config, ids, room, seed=1)
    translator: Any = ctranslate2.Translator(str(out))
    theirs = [[names.source[i] for i in row] for row in sources]
    scored = translator.score_batch(
        theirs, [[names.target[i] for i in row] for row in texts], max_input_length=0
    )
    written = translator.translate_batch(
        theirs,
        beam_size=1,
        length_penalty=0,
        max_input_length=0,
        min_decoding_length=0,  # one, as it stands, would take the end out of the first sum
        max_decoding_length=min(USUAL, config.max_length),
        return_scores=True,
        return_end_token=True,
    )
    numbers = {name: index for index, name in enumerate(names.target)}
    sources = [[*row, ids.eos] for row in sources]
    return [
        *(
            Claim(source, [ids.decoder_start], [*text, ids.eos], found.log_probs)
            for source, text, found in zip(sources, texts, scored, strict=True)
        ),
        *(
            Claim(
                source,
                [ids.decoder_start],
                [numbers[token] for token in found.hypotheses[0]],
                found.scores[:1],
            )
            for source, found in zip(sources, written, strict=True)
            if found.hypotheses[0]  # of an empty source it says nothing
        ),
    ]


def _ask_decoder(out: Path, config: ModelConfig, ids: TokenIds, names: Names) -> list[Claim]:
    import ctranslate2

    generator: Any = ctranslate2.Generator(str(out))
    rows = _rows(config.vocab_size, config, ids, longest_probe(config), seed=1)
    texts = [row for row in rows if len(row) > 1]
    scored = generator.score_batch(
        [[names.target[i] for i in text] for text in texts], max_input_length=0
    )
    # Equally long: where they are not, its limit of what to write counts from the shortest.
    n_given = min(2, config.max_length)
    prompts = [row[:n_given] for row in rows if len(row) >= n_given]
    written = generator.generate_batch(
        [[names.target[i] for i in prompt] for prompt in prompts],
        beam_size=1,
        length_penalty=0,
        max_length=min(USUAL, config.max_length - n_given + 1),  # the last is not read any more
        include_prompt_in_result=False,
        return_scores=True,
        return_end_token=True,
    )
    return [
        *(
            Claim([], text[:1], text[1:], found.log_probs)
            for text, found in zip(texts, scored, strict=True)
        ),
        *(
            Claim([], prompt, found.sequences_ids[0], found.scores[:1])
            for prompt, found in zip(prompts, written, strict=True)
        ),
    ]


def _rows(
    vocab_size: int, config: ModelConfig, ids: TokenIds, longest: int, *, seed: int
) -> list[list[int]]:
    """Random texts of several lengths, without tokens that begin or end one."""
    control = {config.pad_id, ids.bos, ids.eos, ids.decoder_start}
    ordinary = [i for i in range(vocab_size) if i not in control] or list(range(vocab_size))
    draw = torch.Generator().manual_seed(seed)
    lengths = [min(length, longest) for length in (USUAL, USUAL // 2, 2, 1, longest)]
    rows = [torch.randint(len(ordinary), (length,), generator=draw) for length in lengths]
    return [[ordinary[i] for i in row.tolist()] for row in rows]


@torch.no_grad()
def _difference(model: Model, claim: Claim) -> float:
    tokens = torch.tensor([[*claim.before, *claim.text][:-1]])
    if isinstance(model, Seq2Seq):
        source = torch.tensor([claim.source])
        logits = model(source, tokens, source_real="all", target_real="all")
    else:
        assert isinstance(model, CausalLM)
        logits = model(tokens, real="all")
    after = logits[0, len(claim.before) - 1 :].log_softmax(-1)
    ours = after[torch.arange(len(claim.text)), torch.tensor(claim.text)]
    theirs = torch.tensor(claim.scores, dtype=ours.dtype)
    return _largest(ours - theirs if len(theirs) == len(ours) else ours.sum() - theirs)


def _largest(difference: Tensor) -> float:
    return difference.abs().nan_to_num(nan=torch.inf).max().item()

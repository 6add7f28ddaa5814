"""The proof that a CTranslate2 folder computes what our model does. CTranslate2 gives no logits but
log probabilities: of each of the random tokens that it is shown, and of the texts that it writes by
itself, token by token, as a server would."""

from pathlib import Path
from typing import Any, NamedTuple

import torch

from clearhead.config import ModelConfig
from clearhead.interop.certificate import Certificate, load_in_fp64, longest_probe, versions_of
from clearhead.interop.model_folder import Description, TokenIds
from clearhead.models import CausalLM, Model, Seq2Seq

LIBRARY = "ctranslate2"
LIMIT = 1e-4
"""Theirs is computed in fp32: right ones differ by some 1e-6."""
USUAL = 16
"""Tokens of a text that nothing is special about."""


class Claim(NamedTuple):
    """What CTranslate2 says of a text: the log probability of each token, or of all together."""

    source: list[int]
    before: list[int]
    text: list[int]
    scores: list[float] | None = None
    total: float | None = None


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
    threads = torch.get_num_threads()
    claims = ask(out, config, ids, names)
    torch.set_num_threads(threads)  # CTranslate2 sets them for the whole process
    model = load_in_fp64(model_folder)
    return _certificate(
        architecture,
        largest_difference=max(_difference(model, claim) for claim in claims),
        n_tokens=sum(len(claim.text) for claim in claims),
        compared=("random, of several lengths", "the longest", "written by itself"),
    )


def unchecked(architecture: str, reason: str) -> Certificate:
    return _certificate(architecture, unchecked=reason)


def _certificate(architecture: str, **found: Any) -> Certificate:
    return Certificate(
        family="CTranslate2",
        architecture=architecture,
        library=LIBRARY,
        versions=versions_of("torch", LIBRARY, "tokenizers"),
        measured="log probability",
        limit=LIMIT,
        **found,
    )


def _ask_pair(out: Path, config: ModelConfig, ids: TokenIds, names: Names) -> list[Claim]:
    import ctranslate2

    assert ids.eos is not None and ids.decoder_start is not None
    before = [ids.decoder_start]
    longest = longest_probe(config) - 1  # beside the start, and the end of a source
    sources = _rows(config.vocab_size, config, ids, longest, seed=0)
    texts = _rows(config.output_vocab_size, config, ids, longest, seed=1)
    translator: Any = ctranslate2.Translator(str(out), intra_threads=torch.get_num_threads())
    claims: list[Claim] = []
    # The longest by itself: what the others would be filled up to takes its square of memory.
    for rows, targets in ((sources[:-1][::-1], texts[:-1]), (sources[-1:], texts[-1:])):
        named = [[names.source[i] for i in row] for row in rows]
        scored = translator.score_batch(
            named, [[names.target[i] for i in row] for row in targets], max_input_length=0
        )
        written = translator.translate_batch(
            named,
            beam_size=1,
            length_penalty=0,
            max_input_length=0,
            min_decoding_length=0,  # with 1, its default, the first token cannot be the end
            max_decoding_length=min(USUAL, config.max_length),
            return_scores=True,
            return_end_token=True,
        )
        for row, target, score, own in zip(rows, targets, scored, written, strict=True):
            source = [*row, ids.eos]
            claims.append(Claim(source, before, [*target, ids.eos], scores=score.log_probs))
            text = [names.target.index(token) for token in own.hypotheses[0]]
            if text:  # of an empty source it says nothing
                claims.append(Claim(source, before, text, total=own.scores[0]))
    return claims


def _ask_decoder(out: Path, config: ModelConfig, ids: TokenIds, names: Names) -> list[Claim]:
    import ctranslate2

    rows = _rows(config.vocab_size, config, ids, longest_probe(config), seed=1)
    # Equally long: where they are not, its limit of what to write counts from the shortest.
    n_given = min(2, config.max_length)
    generator: Any = ctranslate2.Generator(str(out), intra_threads=torch.get_num_threads())
    claims: list[Claim] = []
    for part in (rows[:-1], rows[-1:]):  # the longest by itself, as above
        texts = [row for row in part if len(row) > 1]
        prompts = [row[:n_given] for row in part if len(row) >= n_given]
        scored = generator.score_batch(
            [[names.target[i] for i in text] for text in texts], max_input_length=0
        )
        written = generator.generate_batch(
            [[names.target[i] for i in prompt] for prompt in prompts],
            beam_size=1,
            length_penalty=0,
            max_length=min(USUAL, config.max_length - n_given + 1),  # the last is not read any more
            include_prompt_in_result=False,
            return_scores=True,
            return_end_token=True,
        )
        for text, score in zip(texts, scored, strict=True):
            claims.append(Claim([], text[:1], text[1:], scores=score.log_probs))
        for prompt, own in zip(prompts, written, strict=True):
            claims.append(Claim([], prompt, own.sequences_ids[0], total=own.scores[0]))
    return claims


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
    if claim.scores is None:
        differences = ours.sum() - claim.total
    else:
        differences = ours - torch.tensor(claim.scores, dtype=ours.dtype)
    return differences.abs().nan_to_num(nan=torch.inf).max().item()

"""Speculative decoding: a small model drafts several tokens, and the large model checks them in one
pass (Leviathan et al. 2023, Chen et al. 2023).

The distribution of the output is that of the large model alone. A drafted token x, drawn with
probability q(x), is kept with probability min(1, p(x) / q(x)). The first token that is not kept is
drawn again, from the excess of p over q. Both p and q are the distributions that `Choice` makes
from the two models' scores."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.config import Choice, DecodeConfig
from clearhead.config.checks import check_at_least
from clearhead.decoding.cached import CachedModel, GenerativeModel
from clearhead.decoding.generation import MAX_ROWS, RunningText
from clearhead.decoding.inputs import DecodeInput, TokenRows, as_inputs
from clearhead.decoding.results import Output, StopReason
from clearhead.decoding.sampling import draw, probabilities, seed_of, uniform
from clearhead.errors import InputError, setting


def speculative(
    model: GenerativeModel,
    draft: GenerativeModel,
    inputs: TokenRows,
    config: DecodeConfig,
    choice: Choice = Choice(),  # noqa: B008 (frozen)
    *,
    seed: int | Sequence[int] = 0,
    n_ahead: int = 4,
    max_rows: int = MAX_ROWS,
) -> list[Output]:
    """Draw as `sample` does (other texts, but from the same distribution), while `draft` runs
    `n_ahead` tokens ahead. `config.window` applies to the model with the shorter `max_length`."""
    check_at_least("max_rows", max_rows, 1)
    if n_ahead < 1:
        raise InputError(f"n_ahead={n_ahead} leaves nothing to check; use at least 1")
    for name in ("family", "vocab_size", "output_vocab_size"):
        ours, theirs = getattr(model.config, name), getattr(draft.config, name)
        if ours != theirs:
            raise InputError(
                f"the draft has {name}={theirs!r} and the model {ours!r}; both must use "
                "the same tokens: take a draft that was trained with the same tokenizer"
            )
    if config.window == "slide":
        raise InputError(f"{setting('window', 'slide')} does not work with a draft; use 'stop'")
    drafting = _Drafting(model, draft, config, choice, seed, n_ahead)
    waiting = as_inputs(inputs, config, replace(model.config, max_length=drafting.window))
    outputs: list[Output] = []
    while together := list(islice(waiting, max_rows)):
        outputs += drafting.decode(together)
    return outputs


class _DraftedText(RunningText):
    """A text, and the large model's log-probability of each of its tokens."""

    def __init__(self, decode_input: DecodeInput, max_tokens: int) -> None:
        super().__init__(decode_input)
        self.max_tokens = max_tokens
        self.log_probs: list[float] = []


class _Drafting:
    """A large model, and a small one that drafts ahead of it."""

    def __init__(
        self,
        large: GenerativeModel,
        small: GenerativeModel,
        config: DecodeConfig,
        choice: Choice,
        seed: int | Sequence[int],
        n_ahead: int,
    ) -> None:
        self.large, self.small = large, small
        self.config, self.choice, self.seed, self.n_ahead = config, choice, seed, n_ahead
        self.window = min(large.config.max_length, small.config.max_length)

    @torch.inference_mode()
    def decode(self, together: list[DecodeInput]) -> list[Output]:
        texts = [
            _DraftedText(text, min(self.config.max_new, self.window - len(text.prompt)))
            for text in together
        ]
        live = [text for text in texts if text.max_tokens > 0]
        if not live:
            return [self._output(text) for text in texts]
        prompts = [text.input.prompt for text in live]
        sources = [text.input.source for text in live if text.input.source is not None]
        large, small = CachedModel(self.large), CachedModel(self.small)
        scores = large.join(prompts, sources or None)[:, None]
        guess_scores = small.join(prompts, sources or None)
        # by the large model, whose own last token waits for the draft
        unread: Tensor | None = None
        while live:
            # Beyond its window, a text has no positions; what is drafted there is padding.
            n_fit = [min(self.n_ahead, self.window - len(text.tokens)) for text in live]
            real = torch.arange(self.n_ahead) < torch.tensor(n_fit)[:, None]
            real = real.to(scores.device)
            drafted: list[list[int]] = []
            guesses: list[Tensor] = []
            for ahead in range(self.n_ahead):
                seen = [
                    text.tokens + [tokens[row] for tokens in drafted]
                    for row, text in enumerate(live)
                ]
                guesses.append(probabilities(guess_scores, self.choice, seen))
                drafted.append(draw(guesses[-1], self._uniforms(live, ahead, "draft")))
                guess_scores = small.step(drafted[-1], real=real[:, ahead : ahead + 1])
            draft = torch.tensor(drafted, device=scores.device).T
            if unread is None:
                scores = torch.cat((scores, large.read(draft, real)), dim=1)
            else:
                real = F.pad(real, (1, 0), value=True)
                scores = large.read(torch.cat((unread, draft), dim=1), real)
            kept, own = self._check(live, scores, torch.stack(guesses, dim=1), draft)
            self._take(live, scores, draft, kept, own)
            surplus = [max(0, n - n_kept) for n, n_kept in zip(n_fit, kept)]
            large.forget(surplus)
            small.forget(surplus)
            rows = [row for row, text in enumerate(live) if text.stop is None]
            live, last = [live[row] for row in rows], [own[row] for row in rows]
            if live:
                large.keep(rows)
                guess_scores = small.step(last, rows)
            unread = torch.tensor(last, device=scores.device)[:, None]
        return [self._output(text) for text in texts]

    def _uniforms(self, texts: Sequence[_DraftedText], ahead: int, purpose: str) -> list[float]:
        """Return a number for each text. `purpose` and the place where the round began keep tokens
        that are drawn again independent of the first draws."""
        return [
            uniform(
                seed_of(self.seed, text.input.number),
                len(text.new) + ahead,
                f"{purpose} {len(text.new)}",
            )
            for text in texts
        ]

    def _check(
        self, texts: Sequence[_DraftedText], scores: Tensor, guesses: Tensor, draft: Tensor
    ) -> tuple[list[int], list[int]]:
        """Return how many drafted tokens of each text are kept, and the large model's own token
        after them."""
        n_texts, n = draft.shape
        seen = [
            text.tokens + row[:ahead]
            for text, row in zip(texts, draft.tolist())
            for ahead in range(n + 1)
        ]
        chances = probabilities(scores.flatten(0, 1), self.choice, seen).view(n_texts, n + 1, -1)
        draft_chances = chances[:, :n].gather(2, draft[:, :, None])[:, :, 0]
        guessed = guesses.gather(2, draft[:, :, None])[:, :, 0]
        numbers = [self._uniforms(texts, ahead, "keep") for ahead in range(n)]
        keeps = torch.tensor(numbers, dtype=chances.dtype, device=chances.device).T
        stays = keeps * guessed < draft_chances
        kept = stays.long().cumprod(dim=1).sum(dim=1)
        row = torch.arange(n_texts, device=draft.device)
        nothing = torch.zeros_like(guesses[:, :1])
        surplus = (chances - torch.cat((guesses, nothing), dim=1))[row, kept].clamp(min=0)
        # If two distributions differ only by rounding, there is no excess.
        surplus = torch.where(surplus.sum(dim=1, keepdim=True) > 0, surplus, chances[row, kept])
        numbers = [
            uniform(seed_of(self.seed, text.input.number), len(text.new) + n_kept, "own")
            for text, n_kept in zip(texts, kept.tolist())
        ]
        return kept.tolist(), draw(surplus, numbers)

    def _take(
        self,
        texts: Sequence[_DraftedText],
        scores: Tensor,
        draft: Tensor,
        kept: list[int],
        own: list[int],
    ) -> None:
        log_probs = scores.log_softmax(dim=2)
        for row, (text, n_kept, token) in enumerate(zip(texts, kept, own)):
            for position, new in enumerate([*draft[row, :n_kept].tolist(), token]):
                text.new.append(new)
                text.log_probs.append(float(log_probs[row, position, new]))
                if new == self.config.eos_id:
                    text.stop = "end"
                elif len(text.new) == text.max_tokens:
                    text.stop = self._at_limit(text)
                if text.stop is not None:
                    break

    def _at_limit(self, text: _DraftedText) -> StopReason:
        return "length" if text.max_tokens == self.config.max_new else "window"

    def _output(self, text: _DraftedText) -> Output:
        return Output(
            tokens=text.new,
            log_probs=text.log_probs,
            score=sum(text.log_probs),
            stop=text.stop or self._at_limit(text),
        )

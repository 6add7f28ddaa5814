"""Speculative decoding: a small model drafts, the large one checks several tokens in one pass
(Leviathan et al. 2023, Chen et al. 2023).

What comes out is distributed as if the large model had written alone. A drafted token x, drawn with
probability q(x), is kept with probability min(1, p(x) / q(x)); the first that is not kept is drawn
again from what p has more than q. Both p and q are what `Choice` leaves of the two models.
"""

from collections.abc import Sequence
from itertools import islice

import torch
from torch import Tensor

from clearhead.config import Choice, DecodeConfig
from clearhead.decoding.inputs import Inputs, Request, requests
from clearhead.decoding.results import Output, StopReason
from clearhead.decoding.sampling import draw, probabilities, seed_of, uniform
from clearhead.decoding.state import PreparedWriter, prepare
from clearhead.decoding.writing import MAX_ROWS, Text
from clearhead.errors import InputError
from clearhead.models import CausalLM, Seq2Seq

Speaker = PreparedWriter | CausalLM | Seq2Seq


def speculative(
    model: Speaker,
    draft: Speaker,
    inputs: Inputs,
    config: DecodeConfig,
    choice: Choice = Choice(),  # noqa: B008 (frozen)
    *,
    seed: int | Sequence[int] = 0,
    n_ahead: int = 4,
    max_rows: int = MAX_ROWS,
) -> list[Output]:
    """As `sample` draws (other texts, from the same distribution), with `draft` running `n_ahead`
    tokens ahead."""
    if n_ahead < 1:
        raise InputError(f"n_ahead={n_ahead} leaves nothing to check; use at least 1")
    large, small = (m if isinstance(m, PreparedWriter) else prepare(m) for m in (model, draft))
    for name in ("family", "vocab_size", "output_vocab_size"):
        ours, theirs = getattr(large.config, name), getattr(small.config, name)
        if ours != theirs:
            raise InputError(
                f"the draft has {name}={theirs!r} and the model {ours!r}; both must read and write "
                "the same tokens: take a draft that was trained with the same tokenizer"
            )
    if config.window == "slide":
        raise InputError("window='slide' cannot be drafted ahead; use 'stop'")
    pair = _Pair(large, small, config, choice, seed, n_ahead)
    stream = requests(inputs, config, large.config)
    outputs: list[Output] = []
    while together := list(islice(stream, max_rows)):
        outputs += pair.write(together)
    return outputs


class _Draft(Text):
    """A text, and how likely the large model found each of its tokens."""

    def __init__(self, request: Request, room: int) -> None:
        super().__init__(request)
        self.room = room
        self.log_probs: list[float] = []


class _Pair:
    def __init__(
        self,
        large: PreparedWriter,
        small: PreparedWriter,
        config: DecodeConfig,
        choice: Choice,
        seed: int | Sequence[int],
        n_ahead: int,
    ) -> None:
        self.large, self.small = large, small
        self.config, self.choice, self.seed, self.n_ahead = config, choice, seed, n_ahead
        self.window = min(large.config.max_length, small.config.max_length)

    @torch.inference_mode()
    def write(self, together: list[Request]) -> list[Output]:
        texts = [self._begin(request) for request in together]
        live = [text for text in texts if text.room > 0]
        if not live:
            return [self._output(text) for text in texts]
        prompts = [text.request.prompt for text in live]
        sources = [text.request.source for text in live if text.request.source is not None]
        reserve = self.config.max_new + self.n_ahead
        large, small = self.large.begin(reserve), self.small.begin(reserve)
        scores = large.join(prompts, sources or None)
        guess_scores = small.join(prompts, sources or None)[:, 0]
        unread: Tensor | None = None  # by the large model: its own last token waits for the draft
        while live:
            drafted, guesses = [], []
            for ahead in range(self.n_ahead):
                so_far = torch.stack(drafted, dim=1).tolist() if drafted else [[]] * len(live)
                seen = [text.tokens + more for text, more in zip(live, so_far)]
                guesses.append(probabilities(guess_scores, self.choice, seen))
                chosen = draw(guesses[-1], self._uniforms(live, ahead, "draft"))
                drafted.append(torch.tensor(chosen, device=scores.device))
                guess_scores = small.advance(drafted[-1][:, None])[:, 0]
            draft = torch.stack(drafted, dim=1)
            if unread is None:
                scores = torch.cat((scores, large.extend(draft)), dim=1)
            else:
                scores = large.extend(torch.cat((unread, draft), dim=1))
            kept, own = self._check(live, scores, torch.stack(guesses, dim=1), draft)
            self._take(live, scores, draft, kept, own)
            last = torch.tensor(own, device=scores.device)[:, None]
            large.forget([self.n_ahead - n for n in kept])
            small.forget([self.n_ahead - n for n in kept])
            going_on = [row for row, text in enumerate(live) if text.stop is None]
            if len(going_on) < len(live):
                live, last = [live[row] for row in going_on], last[going_on]
                if live:
                    large.keep(going_on)
                    small.keep(going_on)
            unread = last
            if live:
                guess_scores = small.advance(last)[:, 0]
        return [self._output(text) for text in texts]

    def _begin(self, request: Request) -> _Draft:
        return _Draft(request, min(self.config.max_new, self.window - len(request.prompt)))

    def _uniforms(self, texts: Sequence[_Draft], ahead: int, purpose: str) -> list[float]:
        """A number for each text. `purpose` and the place where the round began keep what is drawn
        again apart from what was drawn before."""
        return [
            uniform(
                seed_of(self.seed, text.request.number),
                len(text.written) + ahead,
                f"{purpose} {len(text.written)}",
            )
            for text in texts
        ]

    def _check(
        self, texts: Sequence[_Draft], scores: Tensor, guesses: Tensor, draft: Tensor
    ) -> tuple[list[int], list[int]]:
        """How many drafted tokens of each text stay, and the large model's own behind them."""
        n_texts, n = draft.shape
        seen = [
            text.tokens + row[:ahead]
            for text, row in zip(texts, draft.tolist())
            for ahead in range(n + 1)
        ]
        chances = probabilities(scores.flatten(0, 1), self.choice, seen).view(n_texts, n + 1, -1)
        wanted = chances[:, :n].gather(2, draft[:, :, None])[:, :, 0]
        guessed = guesses.gather(2, draft[:, :, None])[:, :, 0]
        numbers = [self._uniforms(texts, ahead, "keep") for ahead in range(n)]
        keeps = torch.tensor(numbers, dtype=chances.dtype, device=chances.device).T
        stays = keeps * guessed < wanted
        kept = stays.long().cumprod(dim=1).sum(dim=1)
        row = torch.arange(n_texts, device=draft.device)
        nothing = torch.zeros_like(guesses[:, :1])
        surplus = (chances - torch.cat((guesses, nothing), dim=1))[row, kept].clamp(min=0)
        # Two distributions that differ by rounding alone leave nothing over.
        surplus = torch.where(surplus.sum(dim=1, keepdim=True) > 0, surplus, chances[row, kept])
        numbers = [
            uniform(seed_of(self.seed, text.request.number), len(text.written) + n_kept, "own")
            for text, n_kept in zip(texts, kept.tolist())
        ]
        return kept.tolist(), draw(surplus, numbers)

    def _take(
        self,
        texts: Sequence[_Draft],
        scores: Tensor,
        draft: Tensor,
        kept: list[int],
        own: list[int],
    ) -> None:
        log_probs = scores.log_softmax(dim=2)
        for row, (text, n_kept, token) in enumerate(zip(texts, kept, own)):
            for place, new in enumerate([*draft[row, :n_kept].tolist(), token]):
                text.written.append(new)
                text.log_probs.append(float(log_probs[row, place, new]))
                if new == self.config.eos_id:
                    text.stop = "end"
                elif len(text.written) == text.room:
                    text.stop = self._at_room(text)
                if text.stop is not None:
                    break

    def _at_room(self, text: _Draft) -> StopReason:
        return "length" if text.room == self.config.max_new else "window"

    def _output(self, text: _Draft) -> Output:
        return Output(
            tokens=text.written,
            log_probs=text.log_probs,
            score=sum(text.log_probs),
            stop=text.stop or self._at_room(text),
        )

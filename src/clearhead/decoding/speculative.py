"""Speculative decoding: a small model drafts, the large one checks several tokens in one pass
(Leviathan et al. 2023, Chen et al. 2023).

What comes out is distributed as if the large model had written alone. A drafted token x, drawn with
probability q(x), is kept with probability min(1, p(x) / q(x)); the first that is not kept is drawn
again from what p has more than q. Both p and q are what `Choice` leaves of the two models.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from clearhead.config import Choice, DecodeConfig
from clearhead.decoding.inputs import Inputs, Request, requests
from clearhead.decoding.results import Output, StopReason
from clearhead.decoding.sampling import draw, probabilities, seed_of, uniform
from clearhead.decoding.state import PreparedWriter, State, prepare
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
) -> list[Output]:
    """As `sample` draws, with `draft` running `n_ahead` tokens ahead. One sequence after another:
    this shortens the wait for one text, where the batch has room to spare."""
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
    texts = requests(inputs, config, large.config)
    pair = _Pair(large, small, config, choice, n_ahead)
    return [pair.write(each, seed_of(seed, each.index)) for each in texts]


class _Pair:
    def __init__(
        self,
        large: PreparedWriter,
        small: PreparedWriter,
        config: DecodeConfig,
        choice: Choice,
        n_ahead: int,
    ) -> None:
        self.large, self.small = large, small
        self.config, self.choice, self.n_ahead = config, choice, n_ahead
        self.window = min(large.config.max_length, small.config.max_length)

    @torch.inference_mode()
    def write(self, request: Request, seed: int | str) -> Output:
        n_prompt = len(request.prompt)
        room = min(self.config.max_new, self.window - n_prompt)
        at_room: StopReason = "length" if room == self.config.max_new else "window"
        sources = None if request.source is None else [request.source]
        reserve = self.config.max_new + self.n_ahead
        large, small = self.large.begin(reserve), self.small.begin(reserve)
        scores = large.join([request.prompt], sources)[:, 0]
        small_scores = small.join([request.prompt], sources)[:, 0]
        unread: list[int] = []  # by the large model: it reads its last token with the next draft
        written: list[int] = []
        log_probs: list[float] = []
        while len(written) < room:
            n_ahead = min(self.n_ahead, room - len(written) - 1)
            drafted, guesses = self._draft(small, small_scores, request, written, n_ahead, seed)
            if unread or drafted:
                ahead = large.extend(_row(unread + drafted, scores))[0]
                scores = ahead if unread else torch.cat((scores, ahead))
            chances = self._chances(scores, request, written, drafted)
            n_kept, token = self._check(chances, guesses, drafted, len(written), seed)
            new = [*drafted[:n_kept], token]
            if self.config.eos_id in new:
                new = new[: new.index(self.config.eos_id) + 1]
            normalised = scores.log_softmax(dim=1)
            log_probs += [float(normalised[i, token]) for i, token in enumerate(new)]
            written += new
            if new[-1] == self.config.eos_id or len(written) >= room:
                break
            large.forget(len(drafted) - n_kept)
            unread = [token]
            # The small model has read all that it drafted but the last.
            n_read = min(n_kept, max(0, len(drafted) - 1))
            small.forget(max(0, len(drafted) - 1) - n_read)
            small_scores = small.extend(_row(new[n_read:], scores))[0, -1:]
        ended = bool(written) and written[-1] == self.config.eos_id
        return Output(
            tokens=written,
            log_probs=log_probs,
            score=sum(log_probs),
            stop="end" if ended else at_room,
        )

    def _draft(
        self,
        small: State,
        scores: Tensor,
        request: Request,
        written: list[int],
        n_ahead: int,
        seed: int | str,
    ) -> tuple[list[int], list[Tensor]]:
        """Tokens that the small model draws, and what it drew them from."""
        drafted: list[int] = []
        guesses: list[Tensor] = []
        while len(drafted) < n_ahead:
            seen = [request.prompt + written + drafted]
            chances = probabilities(scores, self.choice, seen)
            place = len(written) + len(drafted)
            (token,) = draw(chances, [uniform(seed, place, f"draft {len(written)}")])
            drafted.append(token)
            guesses.append(chances[0])
            if token == self.config.eos_id:
                break
            if len(drafted) < n_ahead:
                scores = small.extend(_row([token], scores))[0]
        return drafted, guesses

    def _chances(
        self, scores: Tensor, request: Request, written: list[int], drafted: list[int]
    ) -> Tensor:
        """What the large model would draw each drafted token from, and the one after them."""
        past = request.prompt + written
        seen = [past + drafted[:n] for n in range(len(drafted) + 1)]
        return probabilities(scores, self.choice, seen)

    def _check(
        self,
        chances: Tensor,
        guesses: list[Tensor],
        drafted: list[int],
        place: int,
        seed: int | str,
    ) -> tuple[int, int]:
        """How many drafted tokens stay, and the large model's own token behind them."""
        for n, (token, guess) in enumerate(zip(drafted, guesses)):
            wanted = uniform(seed, place + n, f"keep {place}") * guess[token]
            if wanted >= chances[n, token]:
                surplus = (chances[n] - guess).clamp(min=0)[None]
                return n, draw(surplus, [uniform(seed, place + n, f"again {place}")])[0]
        n = len(drafted)
        return n, draw(chances[n : n + 1], [uniform(seed, place + n, f"token {place}")])[0]


def _row(tokens: list[int], like: Tensor) -> Tensor:
    return torch.tensor([tokens], dtype=torch.long, device=like.device)

"""Turns text into a model's tokens and back, as in its training."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from clearhead.config import DecodeConfig
from clearhead.config.decode import Start, TooLong, Window
from clearhead.decoding.results import Output
from clearhead.errors import InputError, Verbatim, nearest, setting
from clearhead.interop.model_folder import TokenIds
from clearhead.localise.glossary import Glossary
from clearhead.localise.masking import MaskedText, mask, masked_like
from clearhead.text.pieces import TextPieces, encode_pieces
from clearhead.text.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Codec:
    """Turns text into a model's tokens and back."""

    source: Tokenizer
    target: Tokenizer
    ids: TokenIds

    def as_in_training(self, text: str) -> str:
        """Return a text in the form of prepared data: without white space at its ends, unless the
        model was trained with it. A prompt keeps its white space, because the model continues it
        where it ends."""
        return text.strip() if self.ids.strip else text

    def stripped(self, output: Output) -> Output:
        """Return an output without white space at the ends of its text, if the model was trained
        without it."""
        return replace(output, text=self.as_in_training(output.text))

    @property
    def keeps_spans(self) -> bool:
        """Tell whether the model was trained with reserved tokens for spans that a translation must
        keep (`data.placeholders`)."""
        return bool(self.source.placeholder_ids and self.target.placeholder_ids)

    @property
    def reads_terms(self) -> bool:
        """Tell whether the model was trained with terms of a glossary in its sources
        (`data.glossary`)."""
        return bool(self.source.term_ids)

    def encode_sources(
        self, texts: Sequence[str], glossary: Glossary | None = None
    ) -> list[list[int]]:
        """Encode sources as in training. If the model has an end token, it follows each source; for
        a decoder, the first token of the target follows too. If the model reads terms, those of the
        glossary are added."""
        if self.keeps_spans:
            return self.encode_masked([mask(text) for text in texts], glossary)
        end, plain = self._behind_source, self._all_as_in_training(texts)
        if glossary is None or not self.reads_terms:
            return [[*ids, *end] for ids in self.source.encode_batch(plain)]
        with_terms = [glossary.with_terms([text]) for text in plain]
        return [[*ids, *end] for ids in encode_pieces(self.source, with_terms)]

    def encode_masked(
        self, texts: Sequence[MaskedText], glossary: Glossary | None = None
    ) -> list[list[int]]:
        """Encode texts with numbers for their spans, as `encode` does. A span without a reserved
        token stays text."""
        most = len(self.source.placeholder_ids)
        pieces = [
            [
                text.spans[piece].text if isinstance(piece, int) and piece >= most else piece
                for piece in text.pieces
            ]
            for text in texts
        ]
        end = self._behind_source
        read: list[TextPieces] = [*pieces]
        if glossary is not None and self.reads_terms:
            read = [glossary.with_terms(piece) for piece in pieces]
        return [[*ids, *end] for ids in encode_pieces(self.source, read)]

    @property
    def _behind_source(self) -> list[int]:
        end = [] if self.ids.eos is None else [self.source.eos_id]
        return end if self.ids.target_start is None else [*end, self.ids.target_start]

    def encode_targets(
        self, texts: Sequence[str], sources: Sequence[str] | None = None
    ) -> list[list[int]]:
        """Encode target texts, each with its end. Spans that a target shares with its source have
        the same numbers there; without sources, they are numbered in their order."""
        end = [] if self.ids.eos is None else [self.ids.eos]
        if self.keeps_spans:
            most = len(self.target.placeholder_ids)
            pieces = [
                masked_like(mask(source), self.as_in_training(text), most)
                for source, text in zip(texts if sources is None else sources, texts)
            ]
            return [[*ids, *end] for ids in encode_pieces(self.target, pieces)]
        return [[*ids, *end] for ids in self.target.encode_batch(self._all_as_in_training(texts))]

    def _all_as_in_training(self, texts: Sequence[str]) -> list[str]:
        return [self.as_in_training(text) for text in texts]

    def encode_prompts(self, texts: Sequence[str], start: Start = "auto") -> list[list[int]]:
        """Encode prompts, after the start token that the caller wants."""
        first = self.start_ids(start)
        return [[*first, *ids] for ids in self.target.encode_batch(list(texts))]

    def start_ids(self, start: Start) -> list[int]:
        """Return the start token as a list, which is empty if there is none. Raises if the model
        has no such token."""
        own = self.ids.prompt_start
        choices = {"auto": own, "none": None, "bos": self.ids.bos, "eos": self.ids.eos}
        if not isinstance(start, str) or start not in choices:
            raise InputError(
                f"{setting('start', start)} is not a valid choice; {nearest(str(start), choices)}"
            )
        first = choices[start]
        if start in ("bos", "eos") and first is None:
            others = "none or eos" if self.ids.eos is not None else "none"
            raise InputError(
                f"this model has no {start} token; use {setting('start', Verbatim(others))}"
            )
        return [] if first is None else [first]

    def decode_config(self, max_new: int, window: Window = "stop") -> DecodeConfig:
        """Return the settings that say where decoding starts and ends for this model."""
        return DecodeConfig(
            max_new=max_new, eos_id=self.ids.eos, start_id=self.ids.decoder_start, window=window
        )

    def longest_source(self, longest: int) -> int:
        """Return the highest number of source tokens that a model with `longest` positions can
        translate. A decoder has source and target in one row, and keeps at least a quarter of that
        row for the target."""
        return longest if self.ids.target_start is None else longest * 3 // 4

    def fit_source(
        self, ids: list[int], longest: int, *, too_long: TooLong = "refuse", name: str = "text 1"
    ) -> list[int]:
        """Return the tokens that the model reads: if a source is too long, its first tokens and the
        end."""
        if len(ids) <= self.longest_source(longest):
            return ids
        if too_long == "refuse":
            takes = self.longest_source(longest)
            what = f"{name} has {len(ids)} tokens, but the model takes {takes}"
            raise InputError(f"{what}; split it, or have it cut: {setting('too_long', 'cut')}")
        if self.ids.target_start is not None:
            longest //= 2  # a decoder needs the other half for the target
        end = self._behind_source
        return [*ids[: longest - len(end)], *end]

    def fit_prompt(
        self, ids: list[int], longest: int, *, too_long: TooLong = "refuse", name: str = "text 1"
    ) -> list[int]:
        """Return the tokens that a language model reads: if a prompt is too long, its last
        tokens."""
        if len(ids) <= longest:
            return ids
        if too_long == "refuse":
            what = f"{name} has {len(ids)} tokens, but the model takes {longest}"
            remedy = f"shorten it, or have its front cut: {setting('too_long', 'cut')}"
            raise InputError(f"{what}; {remedy}")
        return ids[-(longest // 2) :]  # half of the window is left for new tokens

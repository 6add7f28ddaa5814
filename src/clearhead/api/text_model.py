"""A model that takes and gives text: what `load` and `train` return."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from clearhead.api.results import NOTHING, Classified, Scored, decoded
from clearhead.api.texts import (
    WINDOWS,
    Texts,
    answer_each,
    as_list,
    check_choice,
    one_string,
    seed_of,
)
from clearhead.api.tokenized_model import TokenizedModel
from clearhead.config import BeamConfig, Choice, Recipe, load_recipe
from clearhead.config.checks import check_at_least
from clearhead.config.decode import LengthPenalty, Start, TooLong, Window
from clearhead.data.batches import labelled_batch
from clearhead.decoding import Output, beam_search, greedy, one_of_strings, sample, stream_text
from clearhead.decoding import score as score_tokens
from clearhead.decoding.opening import RECIPE
from clearhead.errors import FolderError, InputError
from clearhead.evaluation.classification import label_probabilities
from clearhead.inspection.attention import AttentionMap, cross_attention, self_attention
from clearhead.models import Seq2Seq
from clearhead.models.own_parts import NONE, OwnParts
from clearhead.training.loop import Ending
from clearhead.training.report import METRICS, read_metrics

if TYPE_CHECKING:
    from clearhead.api.evaluating import Evaluation
    from clearhead.interop.certificate import Certificate


class TextModel(TokenizedModel):
    """A model with its tokenizer. A string gives one answer, a list (or a generator) a list of
    answers in the same order; `details=True` gives more than the text. `.model`, `.tokenizer` and
    `.config` are there for everything else."""

    def translate(
        self,
        texts: Texts,
        *,
        beam: int = 4,
        n_best: int = 1,
        length_penalty: LengthPenalty = "average",
        alpha: float = 1.0,
        max_new: int = 256,
        too_long: TooLong = "refuse",
        batch: int = 32,
        details: bool = False,
        number: int = 1,
    ) -> Any:
        """Each text in the other language. An empty text stays empty.

        `beam`: hypotheses that are searched side by side (1: greedy). `n_best` above 1 gives a list
        of translations of each text. `length_penalty` and `alpha`: how long and short translations
        are compared. `max_new`: tokens of a translation. `too_long`: a text beyond the model's
        length is refused, or cut with a warning. `batch`: texts that run side by side. `details`
        gives `DecodedText` objects. `number` is the first text's, in messages.
        """
        for name, value in {"beam": beam, "n_best": n_best, "batch": batch}.items():
            check_at_least(name, value, 1)
        model = self.opened.translator
        config = self.opened.codec.decode_config(max_new)
        settings = BeamConfig(
            width=max(beam, n_best), n_best=n_best, length_penalty=length_penalty, alpha=alpha
        )

        def answer(sources: list[list[int]], _: list[int]) -> list[list[Output]]:
            if settings.width == 1:
                found = greedy(model, sources, config, max_rows=batch)
                return [[output] for output in found]
            return beam_search(model, sources, config, settings, max_sentences=batch)

        def encode(place: int, text: str) -> list[int]:
            return self.source_ids(text, too_long=too_long, number=number + place)

        def show(outputs: list[Output] | None) -> Any:
            found = [decoded(output, self.target_tokenizer) for output in outputs or []]
            shown = found if details else [each.text for each in found]
            empty = NOTHING if details else ""
            return shown if n_best > 1 else (shown or [empty])[0]

        return answer_each(texts, encode, answer, show, strip=True)

    def generate(
        self,
        prompts: Texts,
        *,
        max_new: int = 128,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        seed: int = 0,
        only: Sequence[str] | None = None,
        start: Start = "none",
        window: Window = "stop",
        too_long: TooLong = "refuse",
        batch: int = 32,
        details: bool = False,
        number: int = 1,
    ) -> Any:
        """The text that follows each prompt. An empty prompt stays empty.

        `temperature`: 0 takes the likeliest token, below 1 likely tokens become likelier. `top_k`,
        `top_p`, `min_p`: only the likeliest tokens. `repetition_penalty`: above 1, tokens that
        occurred become less likely. `only`: generate one of these texts. `start`: a token before
        each prompt, if the model was trained with one. `window`: what happens at the model's
        length: refuse, stop, slide. `too_long`: a longer prompt is refused, or its front is cut
        with a warning. A text depends on `seed` and its own number only, not on its neighbours;
        `number` is the first one's. `details` gives `DecodedText` objects.
        """
        check_at_least("batch", batch, 1)
        settings = Choice(
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
        )
        model, tokenizer = self.opened.language_model, self.target_tokenizer
        config = self.opened.codec.decode_config(max_new, check_choice("window", window, WINDOWS))
        constraint = None if not only else one_of_strings(only, tokenizer)

        def answer(prompts: list[list[int]], places: list[int]) -> list[Output]:
            return sample(
                model,
                prompts,
                config,
                settings,
                seed=[seed_of(seed, number + place) for place in places],
                constraint=constraint,
                max_rows=batch,
            )

        def encode(place: int, text: str) -> list[int]:
            return self.prompt_ids(text, start=start, too_long=too_long, number=number + place)

        def show(output: Output | None) -> Any:
            found = NOTHING if output is None else decoded(output, tokenizer)
            return found if details else found.text

        return answer_each(prompts, encode, answer, show)

    def stream(
        self,
        prompt: str,
        *,
        max_new: int = 128,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        seed: int = 0,
        only: Sequence[str] | None = None,
        start: Start = "none",
        window: Window = "stop",
        too_long: TooLong = "refuse",
        number: int = 1,
    ) -> Iterator[str]:
        """The text that `generate` gives, piece by piece, as it is generated."""
        prompt = one_string(prompt)
        return stream_text(
            self.opened.language_model,
            self.target_tokenizer,
            self.prompt_ids(prompt, start=start, too_long=too_long, number=number),
            self.opened.codec.decode_config(max_new, check_choice("window", window, WINDOWS)),
            Choice(
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                min_p=min_p,
                repetition_penalty=repetition_penalty,
            ),
            seed=seed_of(seed, number),
            constraint=None if not only else one_of_strings(only, self.target_tokenizer),
        )

    def score(
        self,
        texts: Texts,
        targets: Texts | None = None,
        *,
        start: Start = "none",
        details: bool = False,
        number: int = 1,
    ) -> Any:
        """log p of each text. An encoder-decoder scores `targets`, given the texts as sources. A
        language model scores whole texts; without a `start`, their first token is given.
        `details` gives `Scored` objects, with each token's log-probability."""
        model = self.opened.writer
        sources = as_list(texts)
        if isinstance(model, Seq2Seq):
            if targets is None:
                raise InputError("an encoder-decoder scores translations; give them as targets=")
            wanted = as_list(targets)
            if len(wanted) != len(sources) or isinstance(texts, str) != isinstance(targets, str):
                raise InputError(
                    f"{len(sources)} texts and {len(wanted)} targets; give one for each"
                )
        elif targets is not None:
            raise InputError("a language model scores whole texts; leave targets out")
        else:
            wanted = sources
        pairs = {
            place: self.score_ids(place + number, source, target, start)
            for place, (source, target) in enumerate(zip(sources, wanted))
            if source.strip()
        }
        found = score_tokens(
            model,
            [given for given, _ in pairs.values()],
            [target for _, target in pairs.values()],
            start_id=self.opened.ids.decoder_start,
        )
        scored = {
            place: Scored(tokens=target, log_probs=log_probs)
            for (place, (_, target)), log_probs in zip(pairs.items(), found)
        }
        nothing = Scored(tokens=[], log_probs=[])
        answers = [scored.get(place, nothing) for place in range(len(sources))]
        shown = answers if details else [answer.log_prob for answer in answers]
        return shown[0] if isinstance(texts, str) else shown

    def classify(
        self, texts: Texts, *, batch: int = 32, details: bool = False, number: int = 1
    ) -> Any:
        """Each text's label; None for an empty text. `details` gives `Classified` objects, with the
        probability of every label."""
        check_at_least("batch", batch, 1)
        model, labels = self.opened.classifier
        ids, tokenizer = list(labels.ids.values()), self.opened.source

        def encode(place: int, text: str) -> list[int]:
            found, longest = tokenizer.encode(text.strip()), model.config.max_length
            if len(found) + 2 > longest:  # the mask and the end
                raise InputError(
                    f"text {number + place} has {len(found) + 2} tokens, and the model takes "
                    f"{longest}; shorten it, or label its parts"
                )
            return [*found, tokenizer.eos_id]

        def answer(rows: list[list[int]], _: list[int]) -> list[list[float]]:
            found: list[list[float]] = []
            for first in range(0, len(rows), batch):
                some = [np.array(row) for row in rows[first : first + batch]]
                made = labelled_batch(
                    some,
                    [ids[0]] * len(some),  # which nobody looks at
                    mask_id=labels.mask,
                    pad_id=tokenizer.pad_id,
                    samples=tuple((row,) for row in range(len(some))),
                )
                found += label_probabilities(model, made, ids).tolist()
            return found

        def show(row: list[float] | None) -> Any:
            if row is None:
                return None
            probabilities = dict(zip(labels.ids, row))
            likeliest = max(probabilities, key=lambda label: probabilities[label])
            found = Classified(label=likeliest, probabilities=probabilities)
            return found if details else found.label

        return answer_each(texts, encode, answer, show, strip=True)

    def attention(
        self,
        text: str,
        target: str | Sequence[int] | None = None,
        *,
        layer: int | None = None,
        head: int | None = None,
    ) -> AttentionMap:
        """Where the model looked: a matrix with the texts of its tokens, which shows itself as a
        heat map in a notebook, and as text when printed.

        Of an encoder-decoder, the cross-attention from a translation (its own, or `target`, a text
        or its tokens) to the text; of the others, the attention of a text to itself. `layer` counts
        from 0 (None: the last); `head` too (None: the mean).
        """
        text = one_string(text)
        model = self.model
        if not isinstance(model, Seq2Seq):
            if target is not None:
                raise InputError("only an encoder-decoder has a target; leave it out")
            ids = self.start_ids("none") + self.tokenizer.encode(text)
            if not ids:
                raise InputError("the text is empty, so nothing can be looked at; give some text")
            return self_attention(model, ids, tokenizer=self.tokenizer, layer=layer, head=head)
        source = self.source_ids(text)
        if target is None:
            output = self._output_of(source)
        else:
            end = [] if self.opened.ids.eos is None else [self.opened.ids.eos]
            text_given = isinstance(target, str)
            tokens = self.target_tokenizer.encode(target) + end if text_given else list(target)
            output = Output(tokens=tokens, log_probs=[], score=0.0, stop="end")
        return cross_attention(
            model,
            source,
            output,
            tokenizers=(self.tokenizer, self.target_tokenizer),
            start_id=self.opened.ids.decoder_start,
            layer=layer,
            head=head,
        )

    def _output_of(self, source: list[int]) -> Output:
        config = self.opened.codec.decode_config(256)
        found = beam_search(self.opened.translator, [source], config, BeamConfig())
        return found[0][0]

    def evaluate(self, split: str | None = None, **settings: Any) -> "Evaluation":
        """How good the model is: see `clearhead.evaluate`."""
        from clearhead.api.evaluating import evaluate

        return evaluate(self, split, **settings)

    def export(
        self,
        out: str | Path,
        *,
        to: Literal["huggingface", "ctranslate2"] = "huggingface",
        check: bool = True,
    ) -> "Certificate":
        """Write a new folder that other software opens: see `clearhead.export`."""
        from clearhead.api.exporting import export

        return export(self, out, to=to, check=check)


class TrainedRun(TextModel):
    """The model of a run, and what the run has left: `.recipe`, `.metrics`."""

    def __init__(
        self, folder: Path, *, own_parts: OwnParts = NONE, ending: Ending | None = None
    ) -> None:
        super().__init__(folder, own_parts=own_parts)
        self.ending = ending
        """Why training ended, if it was in this process."""

    @property
    def recipe(self) -> Recipe:
        """Every key, as it was used."""
        if not (self.folder / RECIPE).is_file():
            raise FolderError(f"{self.folder} has no {RECIPE}; is it the folder of a run?")
        return load_recipe(self.folder / RECIPE)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """A record for each step and each validation, as in metrics.jsonl."""
        return read_metrics(self.folder / METRICS)

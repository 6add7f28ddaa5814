"""A model that takes and gives text: what `load` and `train` return."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from clearhead.api.attending import text_attention
from clearhead.api.results import NOTHING, Classified, DecodedText, Scored, classified, decoded
from clearhead.api.texts import (
    Evaluating,
    Generating,
    Labelling,
    ManyTexts,
    Scoring,
    Texts,
    Translating,
    as_list,
    named,
    one_string,
)
from clearhead.api.tokenized_model import TokenizedModel
from clearhead.config import BeamConfig, Choice, GenerateConfig, TranslateConfig
from clearhead.config.checks import check_at_least
from clearhead.config.decode import LengthPenalty, Start, TooLong, TooLongSource, Window
from clearhead.decoding.engine import EngineName, EnginePrecision
from clearhead.decoding.sentences import language_pair
from clearhead.decoding.text import (
    Decoded,
    generate_texts,
    score_texts,
    stream_generated,
    translate_texts,
    warn_of_cut,
)
from clearhead.errors import InputError
from clearhead.evaluation.classification import label_texts
from clearhead.inspection.attention import AttentionMap

if TYPE_CHECKING:
    from clearhead.api.evaluating import Evaluation
    from clearhead.interop.certificate import Certificate


class TextModel(TokenizedModel):
    """A model with its tokenizer. A string gives one answer, a list (or a generator) a list of
    answers in the same order; `details=True` gives more than the text. `.model`, `.tokenizer` and
    `.config` are there for everything else."""

    @overload
    def translate(
        self, texts: str, *, details: Literal[False] = False, **how: Unpack[Translating]
    ) -> str: ...
    @overload
    def translate(
        self, texts: ManyTexts, *, details: Literal[False] = False, **how: Unpack[Translating]
    ) -> list[str]: ...
    @overload
    def translate(
        self, texts: str, *, details: Literal[True], **how: Unpack[Translating]
    ) -> DecodedText: ...
    @overload
    def translate(
        self, texts: ManyTexts, *, details: Literal[True], **how: Unpack[Translating]
    ) -> list[DecodedText]: ...
    @overload
    def translate(
        self, texts: Texts, *, n_best: int = 1, details: bool = False, **how: Unpack[Translating]
    ) -> Any: ...

    def translate(
        self,
        texts: Texts,
        *,
        beam: int = 4,
        n_best: int = 1,
        length_penalty: LengthPenalty = "average",
        alpha: float = 1.0,
        max_new: int = 256,
        too_long: TooLongSource = "skip",
        split: str | None = None,
        batch: int = 32,
        engine: EngineName = "clearhead",
        precision: EnginePrecision = "float32",
        engine_folder: str | Path | None = None,
        details: bool = False,
        number: int = 1,
        called: str = "text",
    ) -> Any:
        """Each text in the other language. An empty text stays empty.

        `beam`: hypotheses that are searched side by side (1: greedy). `n_best` above 1 gives a list
        of translations of each text. `length_penalty` and `alpha`: how long and short translations
        are compared. `max_new`: tokens of a translation. `too_long`: a text beyond the model's
        length stays empty ("skip") or is cut, both with a warning, or is refused. `split`: the
        languages, such as "en-zh", of texts whose sentences are translated one by one (the extra
        `serve`). `batch`: texts that run side by side. `engine`: the model itself, or CTranslate2,
        which is faster (the extra `serve`), with weights of this `precision`; its folders are kept
        in `engine_folder` (None: the cache directory). `details` gives `DecodedText` objects.
        Messages call the first text `called` `number`.
        """
        for name, value in {"beam": beam, "n_best": n_best}.items():
            check_at_least(name, value, 1)
        given = as_list(texts)
        config = TranslateConfig(
            beam=BeamConfig(
                width=max(beam, n_best), n_best=n_best, length_penalty=length_penalty, alpha=alpha
            ),
            max_new=max_new,
            too_long=too_long,
            batch=batch,
        )
        runs = self.engine(self.opened.translator, engine, precision, engine_folder)
        codec, names = self.opened.codec, named(called, number, given)
        pair = None if split is None else language_pair(split)
        found = translate_texts(runs, codec, given, config, names=names, split=pair)
        longest = codec.longest_source(runs.config.max_length)
        for name, each in zip(names, found):
            done = "it was cut" if each.outputs else "left empty; split it, or --too-long cut"
            warn_of_cut(name, len(each.given), each.n_cut, longest, done)
        answers, empty = self._answers(found, details), NOTHING if details else ""
        shown = answers if n_best > 1 else [each[0] if each else empty for each in answers]
        return shown[0] if isinstance(texts, str) else shown

    @overload
    def generate(
        self, prompts: str, *, details: Literal[False] = False, **how: Unpack[Generating]
    ) -> str: ...
    @overload
    def generate(
        self, prompts: ManyTexts, *, details: Literal[False] = False, **how: Unpack[Generating]
    ) -> list[str]: ...
    @overload
    def generate(
        self, prompts: str, *, details: Literal[True], **how: Unpack[Generating]
    ) -> DecodedText: ...
    @overload
    def generate(
        self, prompts: ManyTexts, *, details: Literal[True], **how: Unpack[Generating]
    ) -> list[DecodedText]: ...
    @overload
    def generate(
        self, prompts: Texts, *, details: bool = False, **how: Unpack[Generating]
    ) -> Any: ...

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
        only: Iterable[str] | None = None,
        start: Start = "auto",
        window: Window = "stop",
        too_long: TooLong = "refuse",
        batch: int = 32,
        engine: EngineName = "clearhead",
        precision: EnginePrecision = "float32",
        engine_folder: str | Path | None = None,
        details: bool = False,
        number: int = 1,
        called: str = "text",
    ) -> Any:
        """The text that follows each prompt. An empty prompt stays empty.

        `temperature`: 0 takes the likeliest token, below 1 likely tokens become likelier. `top_k`,
        `top_p`, `min_p`: only the likeliest tokens. `repetition_penalty`: above 1, tokens that
        occurred become less likely. `only`: generate one of these texts. `start`: the token before
        each prompt ("auto": as in training; none, bos, eos). `window`: what happens at the model's
        length: refuse, stop, slide. `too_long`: a longer prompt is refused, or its front is cut
        with a warning. A text depends on `seed` and its own number only, not on its neighbours;
        `number` is the first one's. The others are those of `translate`.
        """
        given = as_list(prompts)
        config = GenerateConfig(
            choice=Choice(
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                min_p=min_p,
                repetition_penalty=repetition_penalty,
            ),
            max_new=max_new,
            seed=seed,
            only=() if only is None else tuple(as_list(only)),
            start=start,
            window=window,
            too_long=too_long,
            batch=batch,
        )
        runs = self.engine(self.opened.language_model, engine, precision, engine_folder)
        names = named(called, number, given)
        found = generate_texts(
            runs, self.opened.codec, given, config, first_number=number, names=names
        )
        for name, each in zip(names, found):
            longest, done = runs.config.max_length, "its front was cut"
            warn_of_cut(name, len(each.given), each.n_cut, longest, done)
        empty = NOTHING if details else ""
        shown = [each[0] if each else empty for each in self._answers(found, details)]
        return shown[0] if isinstance(prompts, str) else shown

    def _answers(self, found: Sequence[Decoded], details: bool) -> list[list[Any]]:
        """Of each text; none of an empty one."""
        if not details:
            return [each.texts for each in found]
        own = self.target_tokenizer
        return [[decoded(*one, own) for one in zip(each.outputs, each.texts)] for each in found]

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
        only: Iterable[str] | None = None,
        start: Start = "auto",
        window: Window = "stop",
        too_long: TooLong = "refuse",
        number: int = 1,
        called: str = "text",
    ) -> Iterator[str]:
        """The text that `generate` gives, piece by piece, as it is generated by the model itself.
        Without a prompt, it begins at `start`."""
        prompt = one_string(prompt)
        check_at_least("number", number, 0)
        config = GenerateConfig(
            choice=Choice(
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                min_p=min_p,
                repetition_penalty=repetition_penalty,
            ),
            max_new=max_new,
            seed=seed,
            only=() if only is None else tuple(as_list(only)),
            start=start,
            window=window,
            too_long=too_long,
        )
        model, codec = self.opened.language_model, self.opened.codec
        return stream_generated(model, codec, prompt, config, number=number, called=called)

    @overload
    def score(
        self, texts: str, targets: str | None = None, *, details: Literal[False] = False,
        **how: Unpack[Scoring],
    ) -> float: ...  # fmt: skip
    @overload
    def score(
        self, texts: ManyTexts, targets: ManyTexts | None = None, *,
        details: Literal[False] = False, **how: Unpack[Scoring],
    ) -> list[float]: ...  # fmt: skip
    @overload
    def score(
        self, texts: str, targets: str | None = None, *, details: Literal[True],
        **how: Unpack[Scoring],
    ) -> Scored: ...  # fmt: skip
    @overload
    def score(
        self, texts: ManyTexts, targets: ManyTexts | None = None, *, details: Literal[True],
        **how: Unpack[Scoring],
    ) -> list[Scored]: ...  # fmt: skip
    @overload
    def score(
        self, texts: Texts, targets: Texts | None = None, *, details: bool = False,
        **how: Unpack[Scoring],
    ) -> Any: ...  # fmt: skip

    def score(
        self,
        texts: Texts,
        targets: Texts | None = None,
        *,
        start: Start = "auto",
        details: bool = False,
        number: int = 1,
        called: str = "text",
    ) -> Any:
        """log p of each text. A translator scores `targets`, given the texts as sources. A
        language model scores whole texts; without a `start`, their first token is given.
        `details` gives `Scored` objects, with each token's log-probability."""
        model = self.opened.writer
        sources = as_list(texts)
        wanted = None if targets is None else as_list(targets)
        if self.opened.translates:
            if wanted is None:
                raise InputError("a translator scores translations; give them as targets=")
            if isinstance(texts, str) != isinstance(targets, str):
                raise InputError("text and target must be alike; give two strings, or two lists")
            if len(wanted) != len(sources):
                raise InputError(
                    f"{len(sources)} texts and {len(wanted)} targets; give one for each"
                )
        elif wanted is not None:
            raise InputError("a language model scores whole texts; leave targets out")
        names = named(called, number, sources)
        found = score_texts(model, self.opened.codec, sources, wanted, start=start, names=names)
        shown = found if details else [each.log_prob for each in found]
        return shown[0] if isinstance(texts, str) else shown

    @overload
    def classify(
        self, texts: str, *, details: Literal[False] = False, **how: Unpack[Labelling]
    ) -> str | None: ...
    @overload
    def classify(
        self, texts: ManyTexts, *, details: Literal[False] = False, **how: Unpack[Labelling]
    ) -> list[str | None]: ...
    @overload
    def classify(
        self, texts: str, *, details: Literal[True], **how: Unpack[Labelling]
    ) -> Classified | None: ...
    @overload
    def classify(
        self, texts: ManyTexts, *, details: Literal[True], **how: Unpack[Labelling]
    ) -> list[Classified | None]: ...
    @overload
    def classify(self, texts: Texts, *, details: bool = False, **how: Unpack[Labelling]) -> Any: ...

    def classify(
        self,
        texts: Texts,
        *,
        too_long: TooLongSource = "skip",
        batch: int = 32,
        details: bool = False,
        number: int = 1,
        called: str = "text",
    ) -> Any:
        """Each text's label; None for an empty text. `too_long`: a text beyond the model's length
        has None ("skip") or its end is cut, both with a warning, or it is refused. `details` gives
        `Classified` objects, with the probability of every label."""
        check_at_least("batch", batch, 1)
        model, labels = self.opened.classifier
        given = as_list(texts)
        names, codec = named(called, number, given), self.opened.codec
        found = label_texts(
            model, labels, codec, given, batch=batch, too_long=too_long, names=names
        )
        answers = [None if each is None else classified(each) for each in found]
        shown = answers if details else [None if each is None else each.label for each in answers]
        return shown[0] if isinstance(texts, str) else shown

    def attention(
        self,
        text: str,
        target: str | Sequence[int] | None = None,
        *,
        layer: int | None = None,
        head: int | None = None,
        too_long: TooLong = "refuse",
    ) -> AttentionMap:
        """Where the model looked: a matrix with the texts of its tokens. A notebook shows it as the
        page of `clearhead see`, with all other layers and heads; `print` shows it as text.

        Of an encoder-decoder, the cross-attention from a translation (its own, or `target`, a text
        or its tokens) to the text; of the others, the attention of a text to itself. `layer` counts
        from 0 (None: the last); `head` too (None: the mean). `too_long`: a text beyond the model's
        length is refused, or cut as `translate` and `generate` cut it.
        """
        return text_attention(
            self.opened,
            one_string(text),
            target,
            name=self.name,
            layer=layer,
            head=head,
            too_long=too_long,
        )

    def evaluate(self, split: str | None = None, **settings: Unpack[Evaluating]) -> "Evaluation":
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

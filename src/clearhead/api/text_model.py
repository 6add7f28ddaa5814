"""A model that takes and returns text: `load` and `train` return it."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Unpack, overload

from clearhead.api.keywords import chosen, refuse_more, takes
from clearhead.api.languages import refuse_other_pair
from clearhead.api.old_calls import answer_old, is_old
from clearhead.api.results import Classified, Evaluation, classified
from clearhead.api.text_attention import text_attention
from clearhead.api.texts import (
    Evaluating,
    Filling,
    Generating,
    Labelling,
    NBest,
    Sampling,
    Scoring,
    Texts,
    Translating,
    as_list,
    one_string,
)
from clearhead.api.tokenized_model import TokenizedModel
from clearhead.config.checks import as_path
from clearhead.config.decode import TooLong
from clearhead.config.evaluate import (
    EncoderEvaluation,
    LanguageModelEvaluation,
    Split,
    TranslatorEvaluation,
)
from clearhead.config.options import (
    CatalogueOptions,
    ClassifyOptions,
    EngineOptions,
    GenerateOptions,
    NBestOptions,
    SamplingOptions,
    ScoreOptions,
    TranslateOptions,
)
from clearhead.config.tasks import ExportOptions, Software, StoredPrecision
from clearhead.decoding.cached import GenerativeModel
from clearhead.decoding.continuing import generate_texts, stream_generated
from clearhead.decoding.results import Output, Scored
from clearhead.decoding.scoring import score_texts
from clearhead.decoding.sentences import language_pair
from clearhead.decoding.sources import warn_of_cut, warn_of_too_long
from clearhead.decoding.text import Engine, translate_texts
from clearhead.errors import InputError
from clearhead.evaluation.classification import label_texts
from clearhead.inspection.attention import AttentionMap
from clearhead.localise.glossary import as_glossary

if TYPE_CHECKING:
    from clearhead.interop.certificate import Certificate
    from clearhead.localise.filling import Filled


class TextModel(TokenizedModel):
    """A model with its tokenizer. For a string, its methods return one answer; for a list (or a
    generator), a list of answers in the same order. For everything else, use `.model`, `.tokenizer`
    and `.config`."""

    def __call__(self, *_: object) -> NoReturn:
        """Raises, and says which method is meant."""
        raise InputError(
            "a model is not called with a text; use model.translate(text), model.generate(prompt) "
            "or model.classify(text), and for tensors of tokens model.model(tokens)"
        )

    @overload
    def translate(self, texts: str, **options: Unpack[Translating]) -> str: ...
    @overload
    def translate(self, texts: Iterable[str], **options: Unpack[Translating]) -> list[str]: ...
    @takes(TranslateOptions)
    def translate(self, texts: Texts, *more: object, **options: Any) -> Any:
        """Translate each text. The translation of an empty text is empty."""
        refuse_more(more, "beam=4 (the model decides the languages)")
        if is_old("translate", options):
            return answer_old("translate", find_translations, self, texts, options)
        answers = find_translations(self, as_list(texts), chosen(TranslateOptions, options))
        return _alike(texts, [outputs[0].text if outputs else "" for outputs in answers])

    @overload
    def translations(self, texts: str, **options: Unpack[NBest]) -> list[Output]: ...
    @overload
    def translations(
        self, texts: Iterable[str], **options: Unpack[NBest]
    ) -> list[list[Output]]: ...
    @takes(NBestOptions)
    def translations(self, texts: Texts, **options: Any) -> Any:
        """Return the best translations of each text, with their tokens and scores. An empty text
        has no translations."""
        settings = chosen(NBestOptions, options)
        answers = find_translations(self, as_list(texts), settings, n_best=settings.n_best)
        return _alike(texts, answers)

    @takes(CatalogueOptions)
    def fill_catalogue(
        self, path: str | Path, output: str | Path | None = None, **options: Unpack[Filling]
    ) -> "Filled":
        """Fill the open entries of a PO or XLIFF file, and write the result to `output`, or over
        the file itself. Translations by people are not touched; new translations are marked as
        fuzzy."""
        from clearhead.api.localising import fill_open_entries  # only catalogues need its imports

        settings, catalogue = chosen(CatalogueOptions, options), as_path("path", path)
        engine = _engine(self, self.opened.translator, settings)
        target = catalogue if output is None else as_path("output", output)
        return fill_open_entries(self, engine, catalogue, target, settings)

    @overload
    def generate(self, prompts: str, **options: Unpack[Generating]) -> str: ...
    @overload
    def generate(self, prompts: Iterable[str], **options: Unpack[Generating]) -> list[str]: ...
    @takes(GenerateOptions)
    def generate(self, prompts: Texts, *more: object, **options: Any) -> Any:
        """Generate the text that follows each prompt. Nothing follows an empty prompt."""
        refuse_more(more, "max_new=50")
        if is_old("generate", options):
            return answer_old("generate", generate_continuations, self, prompts, options)
        answers = generate_continuations(self, as_list(prompts), chosen(GenerateOptions, options))
        return _alike(prompts, ["" if answer is None else answer.text for answer in answers])

    @overload
    def continuations(self, prompts: str, **options: Unpack[Generating]) -> Output | None: ...
    @overload
    def continuations(
        self, prompts: Iterable[str], **options: Unpack[Generating]
    ) -> list[Output | None]: ...
    @takes(GenerateOptions)
    def continuations(self, prompts: Texts, **options: Any) -> Any:
        """Return the text that `generate` returns, with its tokens and scores; None for an empty
        prompt."""
        answers = generate_continuations(self, as_list(prompts), chosen(GenerateOptions, options))
        return _alike(prompts, answers)

    @takes(SamplingOptions)
    def stream(self, prompt: str, **options: Unpack[Sampling]) -> Iterator[str]:
        """Yield the text that `generate` returns, piece by piece, while the model generates it.
        Without a prompt, the text begins at `start`."""
        if is_old("stream", options):
            return answer_old("stream", stream_continuation, self, prompt, {**options})
        return stream_continuation(self, one_string(prompt), chosen(SamplingOptions, options))

    @overload
    def score(
        self, texts: str, targets: str | None = None, **options: Unpack[Scoring]
    ) -> float: ...
    @overload
    def score(
        self, texts: Iterable[str], targets: Iterable[str] | None = None, **options: Unpack[Scoring]
    ) -> list[float]: ...
    @takes(ScoreOptions)
    def score(self, texts: Texts, targets: Texts | None = None, **options: Any) -> Any:
        """Compute log p of each text. A translator scores `targets`, given the texts as sources. A
        language model scores whole texts; without a `start`, their first token is not scored."""
        if is_old("score", options):
            return answer_old("score", score_tokens, self, texts, options, targets)
        scores = self._scores(texts, targets, chosen(ScoreOptions, options))
        return _alike(texts, [scored.log_prob for scored in scores])

    @overload
    def token_scores(
        self, texts: str, targets: str | None = None, **options: Unpack[Scoring]
    ) -> Scored: ...
    @overload
    def token_scores(
        self, texts: Iterable[str], targets: Iterable[str] | None = None, **options: Unpack[Scoring]
    ) -> list[Scored]: ...
    @takes(ScoreOptions)
    def token_scores(self, texts: Texts, targets: Texts | None = None, **options: Any) -> Any:
        """Return the log-probability of each token; `score` adds them up."""
        return _alike(texts, self._scores(texts, targets, chosen(ScoreOptions, options)))

    def _scores(self, texts: Texts, targets: Texts | None, options: ScoreOptions) -> list[Scored]:
        sources, target_texts = as_list(texts), None if targets is None else as_list(targets)
        if target_texts is not None and isinstance(texts, str) != isinstance(targets, str):
            raise InputError("text and target must be of one type; give two strings or two lists")
        return score_tokens(self, sources, target_texts, options)

    @overload
    def classify(self, texts: str, **options: Unpack[Labelling]) -> str | None: ...
    @overload
    def classify(self, texts: Iterable[str], **options: Unpack[Labelling]) -> list[str | None]: ...
    @takes(ClassifyOptions)
    def classify(self, texts: Texts, **options: Any) -> Any:
        """Return each text's label; None for a text that is empty or skipped."""
        if is_old("classify", options):
            return answer_old("classify", compute_label_probabilities, self, texts, options)
        settings = chosen(ClassifyOptions, options)
        answers = compute_label_probabilities(self, as_list(texts), settings)
        return _alike(texts, [None if answer is None else answer.label for answer in answers])

    @overload
    def label_probabilities(
        self, texts: str, **options: Unpack[Labelling]
    ) -> Classified | None: ...
    @overload
    def label_probabilities(
        self, texts: Iterable[str], **options: Unpack[Labelling]
    ) -> list[Classified | None]: ...
    @takes(ClassifyOptions)
    def label_probabilities(self, texts: Texts, **options: Any) -> Any:
        """Return the probability of every label for each text; `classify` chooses the likeliest
        label."""
        settings = chosen(ClassifyOptions, options)
        return _alike(texts, compute_label_probabilities(self, as_list(texts), settings))

    def attention(
        self,
        text: str,
        target: str | Sequence[int] | None = None,
        *,
        layer: int | None = None,
        head: int | None = None,
        too_long: TooLong = "refuse",
    ) -> AttentionMap:
        """Show where the model looked: return a matrix of attention weights with the texts of its
        tokens. A notebook shows it as the page of `clearhead see`, with all other layers and heads;
        `print` shows it as text.

        For an encoder-decoder, this is the cross-attention from a translation to the text; the
        translation is the model's own, or `target` (a text or its tokens). For other models, it is
        the attention of a text to itself. `layer` and `head` count from 0 (None: the last layer,
        and the mean of the heads). `too_long` says whether a text beyond the model's length is
        refused, or truncated as `translate` and `generate` truncate it.
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

    @takes(TranslatorEvaluation, LanguageModelEvaluation, EncoderEvaluation)
    def evaluate(self, split: Split | None = None, **settings: Unpack[Evaluating]) -> Evaluation:
        """Measure how good the model is: see `clearhead.evaluate`."""
        from clearhead.api.evaluating import measure  # imported here, as it takes a second

        return measure(self, split, settings)

    def export(
        self,
        out: str | Path,
        *,
        to: Software = "huggingface",
        check: bool = ExportOptions.check,
        precision: StoredPrecision = ExportOptions.precision,
        runtime: str | Path | None = ExportOptions.runtime,
        example: str | None = ExportOptions.example,
        single_file: bool = ExportOptions.single_file,
    ) -> "Certificate":
        """Write a new folder that other software opens: see `clearhead.export`."""
        from clearhead.api import exporting

        return exporting.export(
            self,
            out,
            to=to,
            check=check,
            precision=precision,
            runtime=runtime,
            example=example,
            single_file=single_file,
        )


# The methods above call these functions. The command line does so too, and names each text by its
# line; without names, messages say "text 1", "text 2", …


def find_translations(
    model: TokenizedModel,
    texts: Sequence[str],
    options: TranslateOptions,
    names: Sequence[str] | None = None,
    *,
    n_best: int = 1,
) -> list[list[Output]]:
    """Find the best translations of each text. An empty text has no translations."""
    engine = _engine(model, model.opened.translator, options)
    codec, names = model.opened.codec, _named(texts, names)
    pair = None if options.split is None else language_pair(options.split)
    refuse_other_pair(pair, model.name)
    decoded = translate_texts(
        engine,
        codec,
        texts,
        options.config(n_best),
        names=names,
        split=pair,
        calibration=model.calibration,
        glossary=as_glossary(options.glossary),
    )
    warn_of_too_long(names, decoded, codec, engine.config)
    return [answer.outputs for answer in decoded]


def generate_continuations(
    model: TokenizedModel,
    prompts: Sequence[str],
    options: GenerateOptions,
    names: Sequence[str] | None = None,
    *,
    first_number: int = 1,
) -> list[Output | None]:
    """Continue each prompt. Nothing follows an empty prompt. The random numbers of a text depend on
    its place among the texts."""
    engine = _engine(model, model.opened.language_model, options)
    codec, names, config = model.opened.codec, _named(prompts, names), options.config()
    decoded = generate_texts(engine, codec, prompts, config, first_number=first_number, names=names)
    for name, answer in zip(names, decoded):
        longest = engine.config.max_length
        warn_of_cut(name, len(answer.tokens_read), answer.n_cut, longest, "its front was cut")
    return [answer.outputs[0] if answer.outputs else None for answer in decoded]


def stream_continuation(
    model: TokenizedModel,
    prompt: str,
    options: SamplingOptions,
    *,
    number: int = 1,
    called: str = "text",
) -> Iterator[str]:
    """Continue one prompt, piece by piece, with the model itself (never with CTranslate2)."""
    opened = model.opened
    return stream_generated(
        opened.language_model, opened.codec, prompt, options.config(), number=number, called=called
    )


def score_tokens(
    model: TokenizedModel,
    texts: Sequence[str],
    targets: Sequence[str] | None,
    options: ScoreOptions,
    names: Sequence[str] | None = None,
) -> list[Scored]:
    """Compute the log-probability of every token of the texts, or of a translator's targets."""
    writer = model.opened.writer
    if model.opened.translates:
        if targets is None:
            raise InputError(
                "targets= is missing; give the translations that the model should score"
            )
        if len(targets) != len(texts):
            counts = f"there are {len(texts)} texts and {len(targets)} targets"
            raise InputError(f"{counts}; give one target for each text")
    elif targets is not None:
        raise InputError("a language model scores whole texts; leave targets= out")
    names = _named(texts, names)
    return score_texts(writer, model.opened.codec, texts, targets, start=options.start, names=names)


def compute_label_probabilities(
    model: TokenizedModel,
    texts: Sequence[str],
    options: ClassifyOptions,
    names: Sequence[str] | None = None,
) -> list[Classified | None]:
    """Compute the probability of every label; None for a text that is empty or skipped."""
    encoder, labels = model.opened.classifier
    answers = label_texts(
        encoder,
        labels,
        model.opened.codec,
        texts,
        batch=options.batch,
        too_long=options.too_long,
        names=_named(texts, names),
    )
    return [None if answer is None else classified(answer) for answer in answers]


def _engine(model: TokenizedModel, module: GenerativeModel, options: EngineOptions) -> Engine:
    return model.engine(module, options.engine, options.precision, options.engine_folder)


def _named(texts: Sequence[str], names: Sequence[str] | None) -> Sequence[str]:
    return [f"text {number}" for number, _ in enumerate(texts, 1)] if names is None else names


def _alike(texts: Texts, answers: list[Any]) -> Any:
    """Return one answer if one string was given, and a list of answers otherwise."""
    return answers[0] if isinstance(texts, str) else answers

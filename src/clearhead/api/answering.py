"""What a model answers to texts, in full: `TextModel` gives the text of it, the command line all.

`names` are what messages call the texts: "text 1", "text 2", … unless given.
"""

from collections.abc import Iterator, Sequence

from clearhead.api.results import Classified, classified
from clearhead.api.tokenized_model import TokenizedModel
from clearhead.config.options import (
    ClassifyOptions,
    EngineOptions,
    GenerateOptions,
    SamplingOptions,
    ScoreOptions,
    TranslateOptions,
)
from clearhead.decoding.cached import GenerativeModel
from clearhead.decoding.engine import Engine
from clearhead.decoding.results import DecodedText, Scored
from clearhead.decoding.sentences import language_pair
from clearhead.decoding.text import (
    generate_texts,
    score_texts,
    stream_generated,
    translate_texts,
    warn_of_cut,
)
from clearhead.errors import InputError
from clearhead.evaluation.classification import label_texts


def translations(
    model: TokenizedModel,
    texts: Sequence[str],
    options: TranslateOptions,
    names: Sequence[str] | None = None,
    *,
    n_best: int = 1,
) -> list[list[DecodedText]]:
    """The best translations of each text; none of an empty one."""
    engine = _engine(model, model.opened.translator, options)
    codec, names = model.opened.codec, _named(texts, names)
    pair = None if options.split is None else language_pair(options.split)
    config = options.config(n_best)
    decoded = translate_texts(engine, codec, texts, config, names=names, split=pair)
    longest = codec.longest_source(engine.config.max_length)
    for name, each in zip(names, decoded):
        done = "it was cut" if each.outputs else "left empty; split it, or try too_long='cut'"
        warn_of_cut(name, len(each.given), each.n_cut, longest, done)
    return [each.outputs for each in decoded]


def continuations(
    model: TokenizedModel,
    prompts: Sequence[str],
    options: GenerateOptions,
    names: Sequence[str] | None = None,
    *,
    first_number: int = 1,
) -> list[DecodedText | None]:
    """What follows each prompt; nothing follows an empty one. The random numbers of a text are
    those of its number."""
    engine = _engine(model, model.opened.language_model, options)
    codec, names, config = model.opened.codec, _named(prompts, names), options.config()
    decoded = generate_texts(engine, codec, prompts, config, first_number=first_number, names=names)
    for name, each in zip(names, decoded):
        longest = engine.config.max_length
        warn_of_cut(name, len(each.given), each.n_cut, longest, "its front was cut")
    return [each.outputs[0] if each.outputs else None for each in decoded]


def streamed(
    model: TokenizedModel,
    prompt: str,
    options: SamplingOptions,
    *,
    number: int = 1,
    called: str = "text",
) -> Iterator[str]:
    """The same for one prompt, piece by piece, by the model itself."""
    opened = model.opened
    return stream_generated(
        opened.language_model, opened.codec, prompt, options.config(), number=number, called=called
    )


def token_scores(
    model: TokenizedModel,
    texts: Sequence[str],
    targets: Sequence[str] | None,
    options: ScoreOptions,
    names: Sequence[str] | None = None,
) -> list[Scored]:
    """The log-probability of every token of the texts, or of the targets of a translator."""
    writer = model.opened.writer
    if model.opened.translates:
        if targets is None:
            raise InputError("targets= is missing: a translator scores translations; give them")
        if len(targets) != len(texts):
            raise InputError(f"{len(texts)} texts and {len(targets)} targets; give one for each")
    elif targets is not None:
        raise InputError("a language model scores whole texts; leave targets= out")
    names = _named(texts, names)
    return score_texts(writer, model.opened.codec, texts, targets, start=options.start, names=names)


def label_probabilities(
    model: TokenizedModel,
    texts: Sequence[str],
    options: ClassifyOptions,
    names: Sequence[str] | None = None,
) -> list[Classified | None]:
    """The probability of every label; None of an empty text, or of one that is skipped."""
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

"""Keywords of 0.2 that version 0.3 still takes, with a warning. The whole file ends with 0.4."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from clearhead.api.keywords import chosen, warn_of_old
from clearhead.api.results import Output
from clearhead.api.texts import Texts, as_list
from clearhead.api.tokenized_model import TokenizedModel
from clearhead.config.checks import check_at_least
from clearhead.config.options import ClassifyOptions, GenerateOptions, NBestOptions, ScoreOptions
from clearhead.errors import InputError
from clearhead.intake.own import labels_as_written
from clearhead.intake.own_text import OwnText, check_strings

Answer = Callable[..., list[Any]]
"""The method that answers in full, with names for the texts."""
OLD = {"details", "n_best", "number", "called"}
INSTEAD = {
    "n_best": "call translations(…, n_best=…)",
    "number": "leave it out",
    "called": "leave it out",
}


def old_translate(
    model: TokenizedModel, texts: Texts, options: dict[str, Any], answer: Answer
) -> Any:
    """`translate` with `details` or `n_best`."""
    details, number, called = _taken(options, "translations(…)")
    sources, settings = as_list(texts), chosen(NBestOptions, options)
    names = _names(sources, number, called)
    answers: list[Any] = answer(model, sources, settings, names, n_best=settings.n_best)
    if not details:
        answers = [[output.text for output in outputs] for outputs in answers]
    if settings.n_best == 1:
        nothing = _nothing(model) if details else ""
        answers = [outputs[0] if outputs else nothing for outputs in answers]
    return answers[0] if isinstance(texts, str) else answers


def old_generate(
    model: TokenizedModel, prompts: Texts, options: dict[str, Any], answer: Answer
) -> Any:
    """`generate` with `details`."""
    details, number, called = _taken(options, "continuations(…)")
    texts, settings = as_list(prompts), chosen(GenerateOptions, options)
    names = _names(texts, number, called)
    outputs = answer(model, texts, settings, names, first_number=number)
    whole = [output or _nothing(model) for output in outputs]
    answers = whole if details else [output.text for output in whole]
    return answers[0] if isinstance(prompts, str) else answers


def old_stream(options: Any) -> dict[str, Any]:
    """The number and the name of the text, where `stream` was given them."""
    if not OLD & options.keys():
        return {}
    _, number, called = _taken(options, "stream(…)")
    check_at_least("number", number, 0)
    return {"number": number, "called": called}


def old_score(
    model: TokenizedModel,
    texts: Texts,
    targets: Texts | None,
    options: dict[str, Any],
    answer: Answer,
) -> Any:
    """`score` with `details`."""
    details, number, called = _taken(options, "token_scores(…)")
    sources, target_texts = as_list(texts), None if targets is None else as_list(targets)
    names = _names(sources, number, called)
    scores = answer(model, sources, target_texts, chosen(ScoreOptions, options), names)
    answers = scores if details else [scored.log_prob for scored in scores]
    return answers[0] if isinstance(texts, str) else answers


def old_classify(
    model: TokenizedModel, texts: Texts, options: dict[str, Any], answer: Answer
) -> Any:
    """`classify` with `details`."""
    details, number, called = _taken(options, "label_probabilities(…)")
    sources = as_list(texts)
    names = _names(sources, number, called)
    settings = chosen(ClassifyOptions, options)
    whole = answer(model, sources, settings, names)
    answers = whole if details else [None if each is None else each.label for each in whole]
    return answers[0] if isinstance(texts, str) else answers


def _taken(options: dict[str, Any], in_detail: str) -> tuple[bool, int, str]:
    """Takes the old keywords, except `n_best`, out of the options."""
    for name in sorted(OLD & options.keys()):
        warn_of_old(f"the keyword {name}", INSTEAD.get(name, f"call {in_detail}"))
    taken = options.pop("details", False), options.pop("number", 1), options.pop("called", "text")
    return taken


def _names(texts: Sequence[str], number: int, called: str) -> list[str]:
    check_at_least("number", number, 0)
    return [f"{called} {text_number}" for text_number, _ in enumerate(texts, number)]


def _nothing(model: TokenizedModel) -> Output:
    """The answer to an empty text."""
    return Output(
        text="", tokens=[], log_probs=[], score=0.0, stop="end", tokenizer=model.target_tokenizer
    )


def old_own_text(text: OwnText | None, old: dict[str, Any]) -> OwnText:
    """The text that the old keywords `pairs`, `texts`, `table` with `columns`, and `label` of
    `recipe_for` give."""
    keywords = ("pairs", "texts", "table", "columns", "label")
    if unknown := set(old) - set(keywords):
        raise TypeError(f"recipe_for has no keyword {min(unknown)!r}")
    arguments = {name: value for name, value in old.items() if value is not None}
    columns = arguments.pop("columns", ())
    if text is not None or len(arguments) != 1 or (columns and "table" not in arguments):
        raise InputError("give text= and no other text, such as text=OwnText.pairs([…])")
    name: str
    value: Any
    ((name, value),) = arguments.items()
    new = {"label": "labels"}.get(name, name)
    warn_of_old(f"the keyword {name}", f"give OwnText.{new}(…)")
    match name, value:
        case "table", _:
            return OwnText.table(value, columns)
        case "label", _:
            check_strings("label", value)
            return OwnText.labels(labels_as_written(value))
    if isinstance(value, Path):
        value = (value,)
    if isinstance(value, list | tuple) and any(isinstance(each, Path) for each in value):
        is_pair = name == "pairs"
        if not all(isinstance(each, Path) for each in value) or (is_pair and len(value) != 2):
            rule = "two of them, source and target" if is_pair else "nothing but paths"
            raise InputError(
                f"{name} holds paths and must hold {rule}; strings are text, not files"
            )
        return OwnText.parallel_files(*value) if is_pair else OwnText.files(*value)
    if name == "texts":
        return OwnText.texts(value)
    if isinstance(value, tuple) and len(value) == 2 and all(map(_is_column, value)):
        return OwnText.columns(*value)
    return OwnText.pairs(value)


def _is_column(value: Any) -> bool:
    """Many texts; two could also be one of two pairs."""
    return not isinstance(value, str | Mapping) and hasattr(value, "__len__") and len(value) != 2

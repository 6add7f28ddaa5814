"""Handles keywords of 0.2 that version 0.3 still takes, with a warning. This whole file will be
removed in 0.4."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from clearhead.api.keywords import chosen, warn_of_old
from clearhead.api.results import Output
from clearhead.api.texts import Texts, as_list, one_string
from clearhead.api.tokenized_model import TokenizedModel
from clearhead.config.checks import check_at_least
from clearhead.config.options import (
    ClassifyOptions,
    GenerateOptions,
    NBestOptions,
    SamplingOptions,
    ScoreOptions,
)
from clearhead.errors import InputError
from clearhead.intake.own import labels_as_written
from clearhead.intake.own_text import OwnText, check_strings

Compute = Callable[..., Any]
"""The function that answers with all details, and takes names for the texts."""
INSTEAD = {
    "n_best": "call translations(…, n_best=…)",
    "number": "leave it out",
    "called": "leave it out",
}


class _Call(NamedTuple):
    """The texts of a call, and the numbers and names that messages use for them."""

    model: TokenizedModel
    texts: list[str]
    number: int
    called: str

    @property
    def names(self) -> list[str]:
        return [f"{self.called} {number}" for number, _ in enumerate(self.texts, self.number)]

    @property
    def nothing(self) -> Output:
        """The answer to an empty text."""
        tokenizer = self.model.target_tokenizer
        return Output(text="", tokens=[], log_probs=[], score=0.0, stop="end", tokenizer=tokenizer)


def _translations(compute: Compute, call: _Call, **options: Any) -> list[Any]:
    settings = chosen(NBestOptions, options)
    answers = compute(call.model, call.texts, settings, call.names, n_best=settings.n_best)
    if settings.n_best > 1:
        return answers
    return [outputs[0] if outputs else call.nothing for outputs in answers]


def _text_of(answer: Output | list[Output]) -> str | list[str]:
    return [output.text for output in answer] if isinstance(answer, list) else answer.text


def _continuations(compute: Compute, call: _Call, **options: Any) -> list[Output]:
    settings = chosen(GenerateOptions, options)
    outputs = compute(call.model, call.texts, settings, call.names, first_number=call.number)
    return [output or call.nothing for output in outputs]


def _streams(compute: Compute, call: _Call, **options: Any) -> list[Any]:
    settings, (prompt,) = chosen(SamplingOptions, options), call.texts
    return [compute(call.model, prompt, settings, number=call.number, called=call.called)]


def _token_scores(
    compute: Compute, call: _Call, targets: Texts | None = None, **options: Any
) -> list[Any]:
    target_texts = None if targets is None else as_list(targets)
    return compute(call.model, call.texts, target_texts, chosen(ScoreOptions, options), call.names)


def _label_probabilities(compute: Compute, call: _Call, **options: Any) -> list[Any]:
    return compute(call.model, call.texts, chosen(ClassifyOptions, options), call.names)


class _OldMethod(NamedTuple):
    """How a method answered in version 0.2."""

    in_detail: str
    """What to call instead, to get answers with details."""
    answers: Callable[..., list[Any]]
    """Returns the answers with their details, one for each text."""
    short: Callable[[Any], Any]
    """Returns an answer without its details."""
    read: Callable[[Any], list[str]] = as_list
    keywords: frozenset[str] = frozenset({"details", "number", "called"})
    """The keywords that the method no longer has."""


METHODS = {
    "translate": _OldMethod(
        "translations(…)",
        _translations,
        _text_of,
        keywords=frozenset({"details", "n_best", "number", "called"}),
    ),
    "generate": _OldMethod("continuations(…)", _continuations, _text_of),
    "stream": _OldMethod(
        "stream(…)",
        _streams,
        lambda pieces: pieces,
        lambda prompt: [one_string(prompt)],
        frozenset({"number", "called"}),
    ),
    "score": _OldMethod("token_scores(…)", _token_scores, lambda scored: scored.log_prob),
    "classify": _OldMethod(
        "label_probabilities(…)",
        _label_probabilities,
        lambda answer: None if answer is None else answer.label,
    ),
}


def is_old(name: str, options: Mapping[str, Any]) -> bool:
    """Tell whether the method of this name is called as in 0.2."""
    return not METHODS[name].keywords.isdisjoint(options)


def answer_old(
    name: str,
    compute: Compute,
    model: TokenizedModel,
    texts: Texts,
    options: dict[str, Any],
    *more: Any,
) -> Any:
    """Return what the method of this name returned for the keywords of 0.2, with a warning for each
    keyword. `more` are the arguments that follow the texts."""
    method = METHODS[name]
    for keyword in sorted(method.keywords & options.keys()):
        remedy = INSTEAD.get(keyword, f"call {method.in_detail}")
        warn_of_old(f"the keyword {keyword}", remedy)
    with_details = options.pop("details", False)
    number, called = options.pop("number", 1), options.pop("called", "text")
    check_at_least("number", number, 0)
    call = _Call(model, method.read(texts), number, called)
    answers = method.answers(compute, call, *more, **options)
    if not with_details:
        answers = [method.short(answer) for answer in answers]
    return answers[0] if isinstance(texts, str) else answers


def old_own_text(text: OwnText | None, old: dict[str, Any]) -> OwnText:
    """Return the text that is given by the old keywords `pairs`, `texts`, `table` with `columns`,
    and `label` of `recipe_for`."""
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
    if isinstance(value, list | tuple) and any(isinstance(item, Path) for item in value):
        is_pair = name == "pairs"
        if not all(isinstance(item, Path) for item in value) or (is_pair and len(value) != 2):
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
    """Tell whether a value is a column of many texts; two texts could also be one of two pairs."""
    return not isinstance(value, str | Mapping) and hasattr(value, "__len__") and len(value) != 2

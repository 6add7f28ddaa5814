"""Compares the language of texts with the language that the name of a model states."""

import logging
from collections.abc import Sequence

from clearhead.decoding.sentences import LanguagePair
from clearhead.errors import ConfigError
from clearhead.intake.languages import other_language
from clearhead.localise.language_codes import is_same_language
from clearhead.serving.languages import language_name, pair_in_name

_log = logging.getLogger("clearhead")


def warn_of_other_language(texts: Sequence[str], model: str, *, side: str = "source") -> bool:
    """Warn if the texts are clearly not in the language that a model of this name
    translates from (or into, on the side "target"). Returns whether it warned."""
    pair = pair_in_name(model)
    if pair is None:
        return False
    own = pair.source if side == "source" else pair.target
    other = other_language(texts, own)
    if other is None:
        return False
    seems = f"seems to be {language_name(other)}" if other else f"has no {language_name(own)} in it"
    direction = "from" if side == "source" else "into"
    _log.warning(
        f"the {side} text {seems}, but {model} translates {direction} {language_name(own)}, as its "
        f"name says: expect wrong translations; give text in {language_name(own)}, or take a model "
        f"for {language_name(other) if other else 'the language of the text'}"
    )
    return True


def refuse_other_pair(pair: LanguagePair | None, model: str) -> None:
    """Raises if the languages by which texts are to be split are not those of the model's name."""
    own = pair_in_name(model)
    if pair is None or own is None:
        return
    sides = (pair.source, own.source), (pair.target, own.target)
    if not all(is_same_language(one, other) for one, other in sides):
        rule = f"names other languages than the model {model}, which translates {own.source} to "
        raise ConfigError("split", str(pair), rule + own.target, f"give {own}")

"""Opens the optional package that tells in which language a text is."""

from typing import Any


def language_identifier() -> Any:
    """Read the model of py3langid, whose probabilities add up to 1."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)

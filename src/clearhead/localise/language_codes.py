"""Compares codes of languages, such as zh_CN and zh."""

import re

TRADITIONAL = frozenset({"hant", "tw", "hk", "mo"})
"""Parts of a code that mean Chinese in traditional characters."""


def is_same_language(one: str, other: str) -> bool:
    """Tell whether two codes name one language: zh_CN and zh do. zh_TW is another language, because
    it is written in other characters."""
    return _language(one) == _language(other)


def _language(code: str) -> str:
    first, *rest = re.split("[-_@.]", code.strip().lower())
    if first == "zh" and TRADITIONAL.intersection(rest) and "hans" not in rest:
        return "zh-hant"
    return {"nb": "no", "nn": "no", "zt": "zh-hant", "cmn": "zh"}.get(first, first)

"""Spans that a translation has to keep: found, replaced by numbers, and put back."""

import pytest
from hypothesis import given, strategies
from hypothesis.strategies import SearchStrategy

from clearhead.localise.masking import mask, mask_pair
from clearhead.localise.menu_keys import MenuKey, with_menu_key, without_menu_key
from clearhead.localise.spans import SpanRules, find_spans, rules_of

SIGNS = "%{}<>&`$:/_'\"()@.#*!, \n\tasdn0129é中\x00"
FLAGS = ["c-format", "no-c-format", "python-format", "python-brace-format", "sh-format", "fuzzy"]
PARTS = ["%s", "%1$s", "%(name)s", "%'d", "%%", "{0}", "{name}", "{{", "<b>", "</b>", "<br/>"]
PARTS += ["&amp;", "https://a.b/c?d=%20e", ":ref:`x`", "``x``", "{n, plural, one {#} other {#}}"]


def texts() -> SearchStrategy[str]:
    """Random text that is full of the signs, and of placeholders."""
    return strategies.lists(
        strategies.one_of(
            strategies.text(SIGNS, max_size=6), strategies.sampled_from(PARTS), strategies.text()
        ),
        max_size=12,
    ).map("".join)


def all_rules() -> SearchStrategy[SpanRules]:
    return strategies.lists(strategies.sampled_from(FLAGS), max_size=2).map(rules_of)


@given(texts(), all_rules())
def test_a_masked_text_is_restored_exactly(text: str, rules: SpanRules):
    masked = mask(text, rules)
    assert masked.restore(masked.pieces) == text
    assert masked.is_kept_by(text)


@given(texts(), all_rules())
def test_text_between_spans_has_no_sign_that_always_begins_one(text: str, rules: SpanRules):
    between = "".join(piece for piece in mask(text, rules).pieces if isinstance(piece, str))
    assert "%" not in between or rules.printf != "always"
    assert not {"{", "}"} & {*between} or rules.brace != "always"


@given(texts(), texts(), strategies.integers(0, 4))
def test_a_pair_shares_its_numbers(source: str, target: str, most: int):
    pair = mask_pair(source, target, most)
    numbers = [{piece for piece in side if isinstance(piece, int)} for side in pair]
    assert numbers[0] == numbers[1] == set(range(len(numbers[0])))
    assert len(numbers[0]) <= most


@pytest.mark.parametrize(
    ("flags", "text", "spans"),
    [
        (["c-format"], "%d of %'d (%-5.2f%%)", ["%d", "%'d", "%-5.2f", "%%"]),
        (["c-format"], "%2$s %1$*3$d %<PRIu64> {x}", ["%2$s", "%1$*3$d", "%<PRIu64>"]),
        (["python-format"], "%(n)d files, %r", ["%(n)d", "%r"]),
        (
            ["python-brace-format"],
            "{0:>{w}} {name!r} {{x}} %s",
            ["{0:>{w}}", "{name!r}", "{{", "}}"],
        ),
        (["no-c-format"], "100% sure, %s", []),
        (["sh-format"], "$name and ${name}", ["$name", "${name}"]),
        ([], "100% sure, %s, %-encoded, %1, %(name)s", ["%", "%s", "%", "%1", "%(name)s"]),
        (
            [],
            "{0} {name} {} { x } {n, number, integer}",
            ["{0}", "{name}", "{}", "{n, number, integer}"],
        ),
        (
            [],
            "{n, plural, one {# file} other {# files}} left",
            ["{n, plural, one {# file} other {# files}}"],
        ),
        ([], "a < b, <a href='x'>c</a>, d > e", ["<a href='x'>", "</a>"]),
        ([], "&lt; &#160; AT&T", ["&lt;", "&#160;"]),
        ([], "See https://a.org/x(y). Or me@b.org!", ["https://a.org/x(y", "me@b.org"]),
        ([], "see :ref:`x <y>` and ``%s``", [":ref:`x <y>`", "``%s``"]),
    ],
)
def test_spans_are_found_by_the_rules_of_the_format(flags: list[str], text: str, spans: list[str]):
    assert [span.text for span in find_spans(text, rules_of(flags))] == spans


def test_unnumbered_arguments_keep_their_order_or_get_numbers():
    in_c, in_python = (mask("%s of %d", rules_of([flag])) for flag in ("c-format", "python-format"))
    assert in_c.in_order == ()
    assert in_c.restore([1, " de ", 0]) == "%2$d de %1$s"
    assert in_c.is_kept_by("%2$d de %1$s")
    assert not in_c.is_kept_by("%d de %s")
    assert in_python.in_order == (0, 1)
    assert mask("%*d %s", rules_of(["c-format"])).in_order == (0, 1)
    assert mask("%(a)s %(b)s", rules_of(["python-format"])).in_order == ()


def test_arguments_inside_a_tag_count_so_that_none_is_numbered_beside_them():
    rules = rules_of(["c-format"])
    text = mask("<a href='%s'> of %s with %s", rules)
    assert text.in_order == (0, 1, 2)
    assert not text.is_kept_by("<a href='%s'> de %2$s avec %1$s")
    assert mask("<a> of %s with %s", rules).in_order == ()
    assert mask("``%s`` of %s", rules).in_order == (0, 1)
    link = mask('<a href="{}">{}</a> of {name}', rules_of(["python-brace-format"]))
    assert link.in_order == (0, 1)


def test_line_ends_at_both_ends_stay():
    masked = mask("\n %s\n", rules_of(["c-format"]))
    assert masked.pieces == (0,)
    assert masked.restore(["x ", 0, "\n"]) == "\n x %s\n"


def test_tags_have_partners():
    assert mask("<p><b>x</b><br/><i>").tags == {1: 2}
    assert mask("<b>x</i></b>").tags == {0: 2}


def test_a_pair_keeps_only_what_both_sides_have():
    source, target = mask_pair("%s in <b>%d</b>", "<b>%2$d</b> de %s ou %x", 8)
    assert source == (0, " in ", 1, 2, 3)
    assert target == (1, 2, 3, " de ", 0, " ou %x")


@pytest.mark.parametrize(
    ("source", "language", "translation", "result"),
    [
        ("_File", "fr", "Fichier", "_Fichier"),
        ("_File", "zh_CN", "文件", "文件(_F)"),
        ("_Open…", "zh_CN", "打开…", "打开(_O)…"),
        ("E_xit", "fr", "Quitter", "_Quitter"),
        ("&Print", "de", "Drucken &amp; mehr", "&Drucken &amp; mehr"),
    ],
)
def test_a_menu_key_follows_the_rule_of_the_language(
    source: str, language: str, translation: str, result: str
):
    pieces, menu_key = without_menu_key(mask(source).pieces)
    assert menu_key is not None
    assert pieces == (source.replace(menu_key.sign, ""),)
    masked = mask(translation)
    placed = with_menu_key(masked.pieces, menu_key, language)
    assert masked.restore(placed) == result


@pytest.mark.parametrize("text", ["read_file", "a & b", "AT&amp;T", "_a _b", "__init__"])
def test_a_text_without_a_menu_key_stays(text: str):
    pieces = mask(text).pieces
    assert without_menu_key(pieces) == (pieces, None)


def test_brackets_of_a_translation_are_left_out():
    assert without_menu_key(("打开(_O)…",)) == (("打开…",), MenuKey("_", "O"))


@given(texts(), strategies.sampled_from(["fr", "zh"]))
def test_a_menu_key_breaks_no_text(text: str, language: str):
    masked = mask(text)
    pieces, menu_key = without_menu_key(masked.pieces)
    if menu_key is not None:
        placed = with_menu_key(pieces, menu_key, language)
        assert [p for p in placed if isinstance(p, int)] == [*range(len(masked.spans))]

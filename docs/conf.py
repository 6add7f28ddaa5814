"""The site: docs/en and docs/zh, built one after the other by `.ci/docs`. It needs no network.

The pages are Markdown that reads well in the repository. What differs on the site is done here:
links out of a language's folder, the language switch, the search in Chinese, pages from docstrings.
"""

import re
import sys
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.search import SearchLanguage

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE / "_site"), str(ROOT / "src")]

project = "clearhead"
extensions = ["myst_parser", "sphinx.ext.mathjax", "notebooks", "reference"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
suppress_warnings = [
    "myst.header",  # a page may begin its sections at the second level
    "toc.not_included",  # a new guide is a page of the site before the index lists it
]
exclude_patterns = ["**/README.md"]
templates_path = ["_site/templates"]
html_theme = "furo"
html_static_path = ["_site/static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_search_summary = False  # it would fetch pages, which a browser refuses for local files
html_show_sphinx = False
html_show_copyright = False
html_title = "clearhead"
mathjax_path = "mathjax/tex-svg.js"
mathjax3_config = {"svg": {"fontCache": "global"}, "options": {"enableMenu": False}}
pygments_style = "friendly"
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "language.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}

SWITCH = re.compile(r"^\[(简体中文|English)\]\([^)]*\)\n", flags=re.M)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\((\.\./[^)#\s]+)(#[^)\s]*)?\)")


class Chinese(SearchLanguage):
    """Chinese has no blanks between words. Runs of Chinese characters are indexed as pairs, and a
    query is cut in the same way: every word of two or more characters is found, whether or not a
    dictionary knows it."""

    lang = "zh"
    language_name = "Chinese"
    stopwords = frozenset()
    js_splitter_code = r"""
var splitQuery = (query) => query
  .split(/[^\p{Letter}\p{Number}_]+/gu)
  .flatMap((part) => part.match(/[\u4e00-\u9fff]+|[^\u4e00-\u9fff]+/gu) || [])
  .flatMap((part) => /[\u4e00-\u9fff]/.test(part) && part.length > 2
    ? Array.from({length: part.length - 1}, (_, i) => part.slice(i, i + 2)) : [part]);
"""

    def split(self, input: str) -> list[str]:
        """Pairs of Chinese characters (a single one by itself), and other words as they are."""
        words: list[str] = []
        for part in re.findall(r"[\u4e00-\u9fff]+|[^\W\u4e00-\u9fff]+", input):
            if "\u4e00" <= part[0] <= "\u9fff" and len(part) > 1:
                words += [part[i : i + 2] for i in range(len(part) - 1)]
            else:
                words.append(part)
        return words

    def stem(self, word: str) -> str:
        """Chinese words have no endings."""
        return word.lower()


def adapt_links(app: Sphinx, docname: str, source: list[str]) -> None:
    """The switch stands in the margin of the site. A link to a file outside of the language's
    folder becomes plain text with the file's path: the site has no copy of the repository."""
    page = Path(app.srcdir) / f"{docname}.md"

    def adapted(link: re.Match[str]) -> str:
        picture, text, target, _anchor = link.groups()
        path = (page.parent / target).resolve()
        if path.is_relative_to(app.srcdir) or picture:
            return link.group()
        if path.parent == ROOT and path.name.startswith("README"):
            return f"[{text}]({'../' * docname.count('/')}index.md)"
        shown = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else target
        return text if text.strip("`") in shown else f"{text} (`{shown}`)"

    source[0] = LINK.sub(adapted, SWITCH.sub("", source[0], count=1))


def add_language(app: Sphinx, page: str, _: str, context: dict, __: nodes.Node) -> None:
    """What the switch links to: the same page of the other language."""
    other = "zh" if Path(app.srcdir).name == "en" else "en"
    up = "../" * (page.count("/") + 1)
    context["other_language"] = "简体中文" if other == "zh" else "English"
    context["other_page"] = f"{up}{other}/{page}.html"
    if re.match(r"course/\d", page):
        context["notebook"] = f"{page.removeprefix('course/')}.ipynb"


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.add_search_language(Chinese)
    app.connect("source-read", adapt_links)
    app.connect("html-page-context", add_language)

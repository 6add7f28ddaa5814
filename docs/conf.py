"""The site: docs/en and docs/zh, built one after the other by `.ci/docs`. It needs no network.

The pages are Markdown that reads well in the repository. What differs on the site is done here and
in `_site`: links out of a language's folder, the language switch, search, pages from docstrings.
"""

import re
import sys
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE / "_site"), str(ROOT / "src")]

from repository import LINK, address, target_of  # noqa: E402

project = "clearhead"
extensions = [
    "myst_parser",
    "sphinx.ext.mathjax",
    "chinese",
    "notebooks",
    "reference",
    "repository",
    "searching",
]
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
html_js_files = ["site.js"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_title = "clearhead"
mathjax_path = "mathjax/tex-svg.js"
mathjax3_config = {"svg": {"fontCache": "global"}, "options": {"enableMenu": False}}
pygments_style = "friendly"
_FONTS = (
    "system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, 'PingFang SC', "
    "'Noto Sans CJK SC', 'Source Han Sans SC', 'Microsoft YaHei', sans-serif"
)
html_theme_options = {
    "light_css_variables": {"font-stack": _FONTS},
    "dark_css_variables": {"font-stack": _FONTS},
}
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


def adapt_links(app: Sphinx, docname: str, source: list[str]) -> None:
    """The switch stands in the margin of the site. A link to a file outside of the language's
    folder leads to the page that shows the file."""
    page, language = Path(app.srcdir) / f"{docname}.md", Path(app.srcdir).name
    up = "../" * docname.count("/")

    def adapted(link: re.Match[str]) -> str:
        picture, text, target, anchor = link.groups()
        path = target_of(page, target)
        if path is None or picture or path.is_relative_to(app.srcdir):
            return link.group()
        return f'<a href="{up}{address(path, language, anchor or "")}">{text}</a>'

    source[0] = LINK.sub(adapted, SWITCH.sub("", source[0], count=1))


def add_language(app: Sphinx, page: str, _: str, context: dict, __: nodes.Node) -> None:
    """What the switch links to: the same page of the other language."""
    other = "zh" if Path(app.srcdir).name == "en" else "en"
    up = "../" * (page.count("/") + 1)
    context["other_language"] = "简体中文" if other == "zh" else "English"
    context["other_page"] = f"{up}{other}/{page}.html"
    if re.match(r"course/(\d|before|whole)", page):
        context["notebook"] = f"{page.removeprefix('course/')}.ipynb"


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", adapt_links)
    app.connect("html-page-context", add_language)

"""What Chinese pages need: words of the theme, and no slanted Chinese characters."""

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

WORDS = {
    "Back to top": "回到顶部",
    "Home": "首页",
    "Made with ": "排版：",
    "Next": "下一页",
    "On this page": "本页内容",
    "Previous": "上一页",
    "Search": "搜索",
    "Skip to content": "跳到正文",
}
HAN = re.compile("[\u4e00-\u9fff]")


def add_words(app: Sphinx) -> None:
    """The theme asks Sphinx's catalogue for its words, which has no Chinese for these."""
    if Path(app.srcdir).name == "zh":
        app.translator._catalog.update(WORDS)  # pyright: ignore


def mark_emphasis(_: Sphinx, document: nodes.document, __: str) -> None:
    """A paragraph that is emphasised as a whole is the caption of a picture. Emphasised Chinese is
    marked, so that the style sheet can put dots under it instead of slanting it."""
    for emphasis in document.findall(nodes.emphasis):
        if isinstance(emphasis.parent, nodes.paragraph) and len(emphasis.parent.children) == 1:
            emphasis.parent["classes"].append("caption")
        elif HAN.search(emphasis.astext()):
            emphasis["classes"].append("han")


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("builder-inited", add_words)
    app.connect("doctree-resolved", mark_emphasis)
    return {"parallel_read_safe": True}

"""The search: the text of every section in one file, in which the browser looks for what is typed.
It needs no server, no network and no list of words, and finds Chinese as it finds English."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

FILE = "search-text.js"
Section = tuple[str, str, str, str]
"""The page with its anchor, the title of the page, the title of the section, the text."""


def without_the_usual_index(app: Sphinx) -> None:
    """Sphinx would cut texts into words, which Chinese does not separate."""
    app.builder.search = False


def search_page(_: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """The page that shows what is found."""
    yield "search", {"title": ""}, "find.html"


def sections(page: str, document: nodes.document) -> Iterator[Section]:
    """Of one page, in their order; what precedes the first heading belongs to the page."""
    titles = [node.astext() for node in document.findall(nodes.title)]
    page_title = titles[0] if titles else page
    for section in document.findall(nodes.section):
        heading = section.next_node(nodes.title)
        own = [child for child in section.children if not isinstance(child, nodes.section)]
        text = " ".join(_text(child) for child in own if child is not heading)
        anchor = section["ids"][0] if section["ids"] else ""
        first = section.parent is document
        title = "" if first or heading is None else heading.astext()
        place = f"{page}.html" if first else f"{page}.html#{anchor}"
        yield place, page_title, title, " ".join(text.split())


def _text(node: nodes.Node) -> str:
    """What a reader sees: no HTML that is passed through, no file names of pictures."""
    if isinstance(node, nodes.raw | nodes.comment | nodes.image):
        return ""
    if isinstance(node, nodes.Text):
        return node.astext()
    between = "" if isinstance(node, nodes.paragraph | nodes.inline | nodes.literal) else " "
    return between.join(_text(child) for child in node.children)


def write_text(app: Sphinx, error: Exception | None) -> None:
    """Beside the pages."""
    if error is None and app.builder.name == "html":
        found = [
            section
            for page in sorted(app.env.found_docs)
            for section in sections(page, app.env.get_doctree(page))
        ]
        text = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
        (Path(app.outdir) / FILE).write_text(f"const SECTIONS = {text};\n", encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("builder-inited", without_the_usual_index)
    app.connect("html-collect-pages", search_page)
    app.connect("build-finished", write_text)
    return {"parallel_read_safe": True}

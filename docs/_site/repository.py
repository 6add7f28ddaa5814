"""Files of the repository as pages of the site, so that every claim can be followed to its source,
its result or its test without a network: those that the guides link to, and those that these link
to in turn. Markdown is rendered; other text is shown, with its lines numbered."""

import posixpath
import re
from collections.abc import Iterator
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.anchors import anchors_plugin
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx.application import Sphinx

ROOT = Path(__file__).parent.parent.parent
LANGUAGES = ("en", "zh")
FOLDER = "repository"
"""Where the pages are, in the site of each language."""
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)#\s:]+)(#[^)\s]*)?\)")
BLOCK = re.compile(r"^```.*?^```\n|`[^`\n]+`", flags=re.M | re.S)
PICTURES = (".svg", ".png", ".webp")


def slug(heading: str) -> str:
    """The anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def target_of(page: Path, link: str) -> Path | None:
    """The file or folder of the repository that a relative link leads to."""
    path = (page.parent / link).resolve()
    return path if path.is_relative_to(ROOT) and path.exists() else None


def guide_of(path: Path) -> tuple[str, str] | None:
    """The language and the page, for a file that is a page of a guide."""
    for language in LANGUAGES:
        folder = ROOT / "docs" / language
        if path.is_relative_to(folder) and path.suffix == ".md":
            return language, path.relative_to(folder).with_suffix("").as_posix()
    return None


@cache
def shown_files() -> tuple[Path, ...]:
    """What the guides of both languages link to outside of themselves, and what that links to."""
    waiting = [p for language in LANGUAGES for p in (ROOT / "docs" / language).rglob("*.md")]
    found: dict[Path, None] = {}
    while waiting:
        page = waiting.pop()
        for path in _linked(page):
            if path not in found and guide_of(path) is None and path.suffix not in PICTURES:
                found[path] = None
                if path.suffix == ".md":
                    waiting.append(path)
    return tuple(sorted(found))


def _linked(page: Path) -> Iterator[Path]:
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    for _, _, link, _ in LINK.findall(text):
        path = target_of(page, link)
        is_front_page = path is not None and path.parent == ROOT and path.stem.startswith("README")
        if path is not None and not is_front_page:
            yield path


def address(path: Path, language: str, anchor: str = "") -> str:
    """The page that shows a file, seen from the top of the site of this language."""
    if path.parent == ROOT and path.name.startswith("README"):
        return "index.html"
    guide = guide_of(path)
    if guide is not None:
        up = "" if guide[0] == language else f"../{guide[0]}/"
        return f"{up}{guide[1]}.html{anchor}"
    return f"{FOLDER}/{path.relative_to(ROOT).as_posix()}.html{anchor}"


def pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Called by Sphinx for pages that have no source of its own kind."""
    language = Path(app.srcdir).name
    for path in shown_files():
        name = path.relative_to(ROOT).as_posix()
        if path.is_dir():
            body = _listing(path, language)
        elif path.suffix == ".md":
            body = _rendered(app, path, language)
        else:
            body = _shown(path)
        header = f'<p class="repository-path"><code>{escape(name)}</code></p>'
        yield f"{FOLDER}/{name}", {"title": path.name, "body": header + body}, "page.html"


def _up(path: Path) -> str:
    """From the page of this file to the top of the site."""
    return "../" * (len(path.relative_to(ROOT).parts))


def _listing(path: Path, language: str) -> str:
    rows = [f"<h1>{escape(path.name)}</h1>", "<ul>"]
    for each in sorted(path.iterdir()):
        text = f"<code>{escape(each.name)}</code>"
        if each in shown_files():
            text = f'<a href="{_up(path)}{address(each, language)}">{text}</a>'
        rows.append(f"<li>{text}</li>")
    return "\n".join([*rows, "</ul>"])


def _shown(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    title = f"<h1>{escape(path.name)}</h1>"
    try:
        lexer = get_lexer_for_filename(path.name, stripnl=False)
    except ClassNotFound:
        return f'{title}<div class="highlight"><pre>{escape(text)}</pre></div>'
    code = highlight(text, lexer, HtmlFormatter(linespans="L", cssclass="highlight numbered"))
    return title + code


def _rendered(app: Sphinx, path: Path, language: str) -> str:
    markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    markdown.use(anchors_plugin, max_level=4, slug_func=slug)
    tokens = markdown.parse(path.read_text(encoding="utf-8"))
    for token in tokens:
        for child in token.children or []:
            _adapt(app, path, language, child)
    html = markdown.renderer.render(tokens, markdown.options, {})
    html = html.replace("<table>", '<div class="table-wrapper container"><table class="docutils">')
    return html.replace("</table>", "</table></div>")


def _adapt(app: Sphinx, page: Path, language: str, token: Token) -> None:
    """A link leads to the page of its file; a picture is copied beside the page."""
    name = {"link_open": "href", "image": "src"}.get(token.type)
    link = str(token.attrs.get(name, "")) if name else ""
    if not name or not link or re.match(r"[a-z]+:|#", link):
        return
    target, _, anchor = link.partition("#")
    path = target_of(page, target)
    if path is None:
        return
    if token.type == "image" or path.suffix in PICTURES:
        where = posixpath.join(FOLDER, path.relative_to(ROOT).as_posix())
        copy = Path(app.outdir) / where
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
        token.attrs[name] = _up(page) + where
    else:
        token.attrs[name] = _up(page) + address(path, language, f"#{anchor}" if anchor else "")


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("html-collect-pages", pages)
    return {"parallel_read_safe": True}

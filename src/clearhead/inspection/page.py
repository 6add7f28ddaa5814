"""Makes the microscope: one HTML file from a document (`look.py`) that needs nothing else.

The script consists of a few ES modules, which are joined in order; their import lines are dropped,
and so is `export` before a declaration. A policy in the page itself forbids it to fetch anything.
"""

import base64
import gzip
import hashlib
import json
import re
from html import escape
from importlib.resources import files
from typing import Any

MODULES = (
    "words",
    "state",
    "data",
    "draw",
    "attention",
    "label",
    "next",
    "layers",
    "tree",
    "walk",
    "learnt",
    "card",
    "off",
    "live",
    "main",
)
LIBRARY = "d3-hierarchy"
PACK_FROM = 1_000_000  # bytes of the document from which it is compressed
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./\w+\.js";\n', flags=re.M)


def page(look: dict[str, Any], files: dict[str, bytes] | None = None) -> str:
    """Make the whole page. Text from the document is only ever shown as text. If a document has a
    field `live`, the page asks the server that has sent it; if that field names a `graph`, the page
    asks the model beside the page or inside it. `files` are the files of such a model, by their
    paths."""
    library, licence = _read(f"vendor/{LIBRARY}.min.js"), _read(f"vendor/{LIBRARY}.LICENSE")
    notice = f"{LIBRARY} (tree layout): {' '.join(licence.split())}"
    script, style = joined_script(), _read("style.css")
    live = "live" in look
    graph = live and "graph" in look["live"]
    rules = policy(live=live, graph=graph, packed=bool(files))
    command = "play" if live and not graph else "see"
    title = escape(f"{look['model']['name']} · clearhead {command}")
    return (
        f'<!doctype html>\n<html lang="{look["language"]}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{rules}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f"{_document({**look, 'notice': notice})}\n{_packed(files or {})}"
        f"<script>{library}</script>\n"
        f'<script type="module">{script}</script>\n</body>\n</html>\n'
    )


def policy(*, live: bool = False, graph: bool = False, packed: bool = False) -> str:
    """Return the policy of the page. The page may run its own script, and, if it is live, ask its
    own server. With a graph, it may also run scripts and WebAssembly from there; with a packed
    graph, it asks for nothing, and the scripts are those that it unpacks itself."""
    library, script = _read(f"vendor/{LIBRARY}.min.js"), joined_script()
    asks = "connect-src 'self'; " if live and not packed else ""
    scripts = "blob:" if packed else "'self'"
    runs = f" {scripts} 'wasm-unsafe-eval'" if graph else ""
    return (
        f"default-src 'none'; script-src {_hash(library)} {_hash(script)}{runs}; {asks}"
        f"style-src {_hash(_read('style.css'))}; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def in_frame(html: str, height: int = 720) -> str:
    """Return the page for a notebook, in a frame that cannot reach anything of the notebook."""
    style = f"width:100%;height:{height}px;border:0"
    return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{escape(html)}"></iframe>'


def joined_script() -> str:
    """Join all modules into one, so that nothing is used before it is defined."""
    return "".join(
        re.sub(r"^export (?=(async )?function |const )", "", _IMPORT.sub("", text), flags=re.M)
        for text in (_read(f"{name}.js") for name in MODULES)
    )


def _packed(files: dict[str, bytes]) -> str:
    return "".join(
        f'<script type="application/gzip" id="file:{path}">{_base64(data)}</script>\n'
        for path, data in files.items()
    )


def _base64(data: bytes) -> str:
    return base64.b64encode(gzip.compress(data, mtime=0)).decode()


def _document(look: dict[str, Any]) -> str:
    text = json.dumps(look, ensure_ascii=False, separators=(",", ":"))
    # Inside a script element only `<` could end the data early.
    text, packed = text.replace("<", "\\u003c"), ""
    if len(text) > PACK_FROM:
        text = _base64(text.encode())
        packed = ' data-packed="gzip"'
    return f'<script type="application/json" id="look"{packed}>{text}</script>'


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _read(name: str) -> str:
    return (files("clearhead.inspection") / "page_files" / name).read_text(encoding="utf-8")

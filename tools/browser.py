"""Opens a folder of static files in a browser (Debian's chromium) that reaches nothing else."""

import functools
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, because there are hundreds of requests."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the folder on this machine only, and return its address."""
    handler = functools.partial(QuietHandler, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def opened(folder: Path, **options: Any) -> Iterator[Any]:
    """Open an empty page in a browser, where `/` is the folder. `options` are those of a browser's
    context."""
    from playwright.sync_api import sync_playwright

    with served(folder) as base, sync_playwright() as p:
        browser = p.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        context = browser.new_context(base_url=base, **options)
        context.route(
            lambda url: not url.startswith(base), lambda route: route.abort("addressunreachable")
        )
        page = context.new_page()
        page.set_default_timeout(300_000)
        yield page
        browser.close()

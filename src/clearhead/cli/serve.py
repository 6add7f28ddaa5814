"""Serves models over HTTP: translators with LibreTranslate's API, decoders with OpenAI's. The
server runs until Ctrl-C or SIGTERM, and then finishes the requests that it has accepted."""

import argparse

from clearhead.api.serving import serve
from clearhead.cli.calling import settings
from clearhead.cli.lines import at_least_one
from clearhead.cli.options import add_options
from clearhead.config.serve import RequestLimits, ServeOptions

CALLS = serve


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "models",
        nargs="+",
        metavar="MODEL",
        help="a run, a model folder, or a shipped model; NAME=MODEL gives it a name. A translator "
        "needs a pair of languages: a folder like multi30k-de-en, or de-en=MODEL",
    )
    words = {"host": "ADDRESS", "log_level": "LEVEL"}
    numbers = {"workers": at_least_one, "beam": at_least_one, "max_new": at_least_one}
    names = ("host", "port", "workers", "log_level")
    add_options(parser, ServeOptions, *names, types=numbers, metavars=words)
    group = parser.add_argument_group("translators")
    names = ("precision", "engine_folder", "beam", "max_new")
    add_options(group, ServeOptions, *names, types=numbers)
    group = parser.add_argument_group("who may send requests")
    add_options(group, ServeOptions, "api_keys", metavars={"api_keys": "FILE"})
    group.add_argument(
        "--allow-origin",
        action="append",
        metavar="ORIGIN",
        help=("a site whose pages may send requests, such as https://example.org; may be repeated"),
    )
    group = parser.add_argument_group("limits")
    add_options(group, RequestLimits, metavars={"seconds": "S", "client_seconds": "S"})


def run(namespace: argparse.Namespace) -> int:
    serve(namespace.models, **settings(namespace, serve))
    return 0

"""Serves models over HTTP: translators by LibreTranslate's API, decoders by OpenAI's. It runs until
Ctrl-C or SIGTERM, and then finishes what it accepted."""

import argparse
from pathlib import Path

from clearhead.api.serving import serve
from clearhead.cli.calling import settings
from clearhead.cli.lines import at_least_one

CALLS = serve


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "models",
        nargs="+",
        metavar="MODEL",
        help="a run, a model folder, or a shipped model; NAME=MODEL gives it a name. A translator "
        "needs a pair of languages: a folder like multi30k-de-en, or de-en=MODEL",
    )
    parser.add_argument("--host", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, metavar="N", help="default: %(default)s; 0: a free one")
    parser.add_argument(
        "--workers",
        type=at_least_one,
        metavar="N",
        help="processes of one core each (default: %(default)s)",
    )
    parser.add_argument(
        "--log-level", metavar="LEVEL", help="debug, info, warning or error (default: %(default)s)"
    )
    group = parser.add_argument_group("translators")
    group.add_argument(
        "--precision", choices=["float32", "int8"], help="of the weights (default: %(default)s)"
    )
    group.add_argument(
        "--engine-folder",
        type=Path,
        metavar="FOLDER",
        help="where ctranslate2's folders are kept (default: the cache directory)",
    )
    group.add_argument(
        "--beam", type=at_least_one, metavar="N", help="width (default: %(default)s; 1 is greedy)"
    )
    group.add_argument(
        "--max-new",
        type=at_least_one,
        metavar="N",
        help="tokens of a sentence (default: %(default)s)",
    )
    group = parser.add_argument_group("who may ask")
    group.add_argument(
        "--api-keys",
        type=Path,
        metavar="FILE",
        help="a file with one key per line (default: CLEARHEAD_API_KEYS, keys separated by commas)",
    )
    group.add_argument(
        "--allow-origin",
        action="append",
        metavar="ORIGIN",
        help="a site whose pages may ask, such as https://example.org; may be given again",
    )
    group = parser.add_argument_group("limits")
    group.add_argument(
        "--max-characters",
        type=at_least_one,
        metavar="N",
        help="of a request (default: %(default)s)",
    )
    group.add_argument(
        "--max-texts", type=at_least_one, metavar="N", help="of a request (default: %(default)s)"
    )
    group.add_argument(
        "--max-waiting",
        type=at_least_one,
        metavar="N",
        help="tokens in the queue of a model; more is refused with 503 (default: %(default)s)",
    )
    group.add_argument(
        "--seconds", type=float, metavar="S", help="for an answer (default: %(default)g)"
    )
    group.add_argument(
        "--max-connections",
        type=at_least_one,
        metavar="N",
        help="of a worker (default: %(default)s)",
    )
    group.add_argument(
        "--max-per-address",
        type=at_least_one,
        metavar="N",
        help="connections of a worker from one address; a proxy is one (default: %(default)s)",
    )
    group.add_argument(
        "--client-seconds",
        type=float,
        metavar="S",
        help="for a client to send a request, and to read the answer (default: %(default)g)",
    )


def run(namespace: argparse.Namespace) -> int:
    serve(namespace.models, **settings(namespace, serve))
    return 0

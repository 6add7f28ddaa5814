"""Downloads against a real server that breaks off, lies about lengths and serves wrong bytes."""

import gzip
import hashlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from clearhead.config import load_recipe, recipe_names
from clearhead.errors import DataError
from clearhead.intake.fetch import fetch
from clearhead.intake.generated import copy_task
from clearhead.intake.public import get_corpus, public_corpora, public_corpus, split_tatoeba

CONTENT = bytes(i * i % 251 for i in range(300_000))
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves CONTENT in one of several ways; remembers what was asked."""

    manner = "well"
    asked: list[str | None]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.asked.append(asked)
        manner = self.server.manner
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        start = 0 if manner == "without ranges" else start
        body, length = CONTENT[start:], len(CONTENT) - start
        match manner:
            case "breaks off":
                body = body[:70_000]
            case "never gives a byte":
                body = b""
            case "says too little":
                length = min(length, 70_000)
                body = body[:length]
            case "says too much":
                length += 1000
            case "wrong bytes":
                body = body[::-1]
            case "more bytes":
                body, length = body + b"more", length + 4
            case "an error":
                self.send_error(503, "Busy")
                return
        self.send_response(206 if asked and manner != "without ranges" else 200)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), Handler)
    server.asked = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def url_of(server: Server) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}/file.bin"


def take(server: Server, path: Path, manner: str) -> None:
    server.manner = manner
    fetch(url_of(server), path, size=len(CONTENT), sha256=SHA256)


@pytest.mark.parametrize(
    "manner", ["well", "breaks off", "says too little", "says too much", "without ranges"]
)
def test_whatever_the_server_does_the_right_bytes_arrive(
    server: Server, tmp_path: Path, manner: str
):
    take(server, tmp_path / "file.bin", manner)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["file.bin"]


def test_what_has_arrived_is_not_asked_for_again(server: Server, tmp_path: Path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:123_456])
    take(server, tmp_path / "file.bin", "well")
    assert server.asked == ["bytes=123456-"]
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_server_without_ranges_starts_again(server: Server, tmp_path: Path):
    (tmp_path / "file.bin.part").write_bytes(b"x" * 1000)
    take(server, tmp_path / "file.bin", "without ranges")
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_file_that_is_there_is_not_downloaded(server: Server, tmp_path: Path):
    (tmp_path / "file.bin").write_bytes(CONTENT)
    take(server, tmp_path / "file.bin", "an error")
    assert server.asked == []


@pytest.mark.parametrize(("manner", "there"), [("wrong bytes", b""), ("well", b"another's")])
def test_wrong_bytes_are_thrown_away(server: Server, tmp_path: Path, manner: str, there: bytes):
    (tmp_path / "file.bin.part").write_bytes(there)
    with pytest.raises(DataError, match=r"does not have the expected sha256 \("):
        take(server, tmp_path / "file.bin", manner)
    assert list(tmp_path.iterdir()) == []
    take(server, tmp_path / "file.bin", "well")


def test_a_longer_file_is_not_taken_for_the_right_one(server: Server, tmp_path: Path):
    server.manner = "more bytes"
    wanted = hashlib.sha256(CONTENT + b"more").hexdigest()
    with pytest.raises(DataError, match="expected sha256"):
        fetch(url_of(server), tmp_path / "f", size=len(CONTENT), sha256=wanted)


@pytest.mark.parametrize(
    ("manner", "message"),
    [
        ("an error", "the server answers 503 Busy"),
        ("never gives a byte", "the server ended after 0 of 300000 bytes"),
    ],
)
def test_a_server_that_gives_nothing_is_given_up(
    server: Server, tmp_path: Path, manner: str, message: str
):
    with pytest.raises(DataError, match=f"{message}; run the same command to resume"):
        take(server, tmp_path / "file.bin", manner)
    assert not (tmp_path / "file.bin").exists()
    assert len(server.asked) == 5


def test_no_server_is_an_error_too(tmp_path: Path):
    with pytest.raises(DataError, match=r"cannot be downloaded: .*[Rr]efused"):
        fetch("http://127.0.0.1:9/file", tmp_path / "file", size=1, sha256="")


def test_a_corpus_is_downloaded_made_and_kept(server: Server, tmp_path: Path):
    corpus = public_corpus("hongloumeng")
    unix = CONTENT.replace(b"\r\n", b"\n")
    download = replace(
        corpus.downloads[0],
        url=url_of(server),
        size=len(CONTENT),
        sha256=SHA256,
        made={"input.txt.gz": hashlib.sha256(unix).hexdigest()},
    )
    corpus = replace(corpus, downloads=[download])
    seen: list[tuple[str, int, int]] = []
    folder = get_corpus(corpus, tmp_path, lambda *each: seen.append(each))
    assert gzip.decompress((folder / "input.txt.gz").read_bytes()) == unix
    assert [path.name for path in folder.iterdir()] == ["input.txt.gz"]
    assert seen[-1] == ("file.bin", len(CONTENT), len(CONTENT))
    n_asked = len(server.asked)
    get_corpus(corpus, tmp_path, lambda *each: None)
    assert len(server.asked) == n_asked
    packed = (folder / "input.txt.gz").read_bytes()
    (folder / "input.txt.gz").write_bytes(packed[:10] + b"\xff" * 9 + packed[19:])  # damaged
    get_corpus(corpus, tmp_path, lambda *each: None)
    assert (folder / "input.txt.gz").read_bytes() == packed


def test_a_corpus_that_is_not_downloaded_is_written_the_same_every_time(tmp_path: Path):
    corpus = public_corpus("copy-task")
    folder = get_corpus(corpus, tmp_path, lambda *each: None)
    (folder / "train.txt").write_bytes(b"damaged\n")
    get_corpus(corpus, tmp_path, lambda *each: None)
    lines: dict[str, list[str]] = {}
    for file, sha256 in corpus.made.items():
        content = (folder / file).read_bytes()
        assert hashlib.sha256(content).hexdigest() == sha256
        lines[file] = content.decode().splitlines()
    together = [line for each in lines.values() for line in each]
    assert len(together) == len(set(together)) == 21_000, "no line is in two files"
    assert copy_task(seed=2) != copy_task(seed=1)


def test_an_unknown_corpus_gets_the_nearest_name():
    with pytest.raises(DataError, match="no corpus 'multi30'; did you mean 'multi30k'"):
        public_corpus("multi30")


@pytest.mark.parametrize("name", ["python-docs-en-zh", "movie-reviews"])
def test_of_a_corpus_that_is_made_by_hand_it_is_told_how(tmp_path: Path, name: str):
    corpus = public_corpus(name)
    assert corpus.by_hand is not None and "\n" not in corpus.by_hand
    with pytest.raises(DataError, match=r"is not there; make it by hand: .*https://github.com/"):
        get_corpus(corpus, tmp_path, lambda *_: None)
    content = b"made\n"
    made = dict.fromkeys(corpus.made, hashlib.sha256(content).hexdigest())
    (tmp_path / corpus.folder).mkdir()
    for file in made:
        (tmp_path / corpus.folder / file).write_bytes(gzip.compress(content))
    assert get_corpus(replace(corpus, made=made), tmp_path, lambda *_: None).is_dir()
    with pytest.raises(DataError, match=r"gz differs from the file .*; make it by hand"):
        get_corpus(corpus, tmp_path, lambda *_: None)


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_names_files_of_a_corpus_that_can_be_had(name: str):
    had = {corpus.folder: corpus for corpus in public_corpora().values()}
    data = load_recipe(name).data
    for path in map(Path, (*data.train, *data.valid, *data.test)):
        corpus = had[path.parts[0]]
        files = {*corpus.made, *(file for each in corpus.downloads for file in each.made)}
        assert path.name in files, f"{name} names {path}"


def test_every_corpus_has_addresses_hashes_and_a_licence():
    for corpus in public_corpora().values():
        assert corpus.licence and corpus.about
        assert sum(map(bool, (corpus.downloads, corpus.generate, corpus.by_hand))) == 1
        assert bool(corpus.made) != bool(corpus.downloads)
        for download in corpus.downloads:
            assert download.url.startswith("https://")
            assert all(len(sha) == 64 for sha in [download.sha256, *download.made.values()])


def test_no_sentence_of_the_tatoeba_test_set_is_in_train():
    lines = [f"{n // 2} is here.\t{n} 在这里\tby n{n}" for n in range(5000)]
    train, dev, test = (
        [line.split("\t") for line in part.decode().splitlines()]
        for part in split_tatoeba(("\n".join(lines) + "\n").encode())
    )
    assert [len(train), len(dev), len(test)] == [3000, 1000, 1000]
    for held_out in (dev, test):
        for column in (0, 1):
            assert not {row[column] for row in train} & {row[column] for row in held_out}

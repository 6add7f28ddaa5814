"""The parts of the server, each alone."""

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.datastructures import Headers
from starlette.requests import Request
from torch import nn

import clearhead as ch
from clearhead.api import serving as serving_api
from clearhead.config import GenerateConfig
from clearhead.config.serve import Limits
from clearhead.decoding.codec import Codec
from clearhead.decoding.results import AnsweredText, Output
from clearhead.decoding.sentences import LanguagePair, language_pair, split_text
from clearhead.decoding.streaming import StreamedPiece
from clearhead.decoding.text import EncodedSource, SeededPrompt
from clearhead.errors import ConfigError, FolderError, InputError, ModelError
from clearhead.interop.model_folder import TokenIds
from clearhead.serving import completions
from clearhead.serving import stored as stored_files
from clearhead.serving.access import Callers
from clearhead.serving.batching import Batcher
from clearhead.serving.bodies import (
    SentFile,
    _form,  # pyright: ignore
    _multipart,  # pyright: ignore
    read_json_object,
    text_field,
)
from clearhead.serving.classification import Classification
from clearhead.serving.completions import Asked, Completions, CompletionStream, RunningCompletion
from clearhead.serving.languages import Detector, find_language, pair_in_name
from clearhead.serving.markup import HtmlText
from clearhead.serving.metrics import Metrics, forget_worker
from clearhead.serving.refusals import RequestError, status_of
from clearhead.serving.stopping import StopAt
from clearhead.serving.stored import StoredFiles
from clearhead.text.train import train_bpe


def always(_: str) -> bool:
    return True


@pytest.mark.parametrize(
    ("text", "language", "sentences"),
    [
        ("Hello. How are you?", "en", ["Hello.", "How are you?"]),
        ("Dr. Smith paid 3.50 dollars. Fine!", "en", ["Dr. Smith paid 3.50 dollars.", "Fine!"]),
        ("你好。世界？再见！", "zh", ["你好。", "世界？", "再见！"]),
        (" one \n\n two. three. ", "en", ["one", "two.", "three."]),
        ("", "en", []),
        (" \r\n\t ", "en", []),
        ("Eins. Zwei.", "xx", ["Eins.", "Zwei."]),
    ],
)
def test_a_text_is_split_and_put_together_again(text: str, language: str, sentences: list[str]):
    found = split_text(text, language, always)
    assert found.sentences == sentences
    pieces = [piece for pair in zip(found.between, [*found.sentences, ""]) for piece in pair]
    assert "".join(pieces) == text


def test_blanks_at_the_ends_of_lines_belong_to_the_sentences_if_the_model_reads_them():
    text = "  One.  Two. \r\n \n\tThree. "
    found = split_text(text, "en", always, strip=False)
    assert found.sentences == ["  One.", "Two. ", "\tThree. "]
    assert found.joined(found.sentences, "  ") == text
    short = split_text("   One. ", "en", lambda sentence: len(sentence) < 6, strip=False)
    assert (short.sentences, short.between) == (["One. "], ["   ", ""])


def test_lines_stay_and_sentences_are_joined_as_the_target_is_written():
    found = split_text(" One.  Two.\r\n\nThree. ", "en", always)
    assert (
        found.joined(["一。", "二。", "三。"], LanguagePair("en", "zh").joint)
        == " 一。二。\r\n\n三。 "
    )
    assert found.joined(["A.", "B.", "C."], LanguagePair("en", "de").joint) == " A. B.\r\n\nC. "


def test_a_run_of_blanks_costs_time_in_proportion_to_its_length():
    text = f"One.{' ' * 100_000}Two."
    before = time.process_time()
    split_text(text, "en", fits=lambda _: True)
    assert time.process_time() - before < 5  # with the square of its length, minutes


def test_a_sentence_that_does_not_fit_is_cut_where_it_can_be():
    def short(sentence: str) -> bool:
        return len(sentence) <= 20

    text = "one two three, four five six, seven eight nine ten " + "x" * 50
    found = split_text(text, "en", short)
    assert all(map(short, found.sentences))
    assert found.sentences[0] == "one two three,"
    assert "".join(found.sentences).replace(" ", "") == text.replace(" ", "")
    assert len(split_text("a" * 10_000, "en", short).sentences) < 1100


def test_pairs_of_languages_are_named():
    assert language_pair("en-zh") == LanguagePair("en", "zh")
    assert language_pair("en-zh-Hant") == LanguagePair("en", "zh-Hant")
    assert pair_in_name("multi30k-de-en") == LanguagePair("de", "en")
    assert pair_in_name("copy-task") is None and pair_in_name("my-lm") is None
    with pytest.raises(InputError, match="write it like en-zh"):
        language_pair("english")


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("zh", "zh"), ("ZH", "zh"), ("zh-CN", "zh"), ("zh_Hans", "zh"), (" en ", "en"),
        ("en-US", "en"), ("zh-TW", None), ("zh-Hant", None), ("zt", None), ("auto", None),
        ("", None), ("e" * 9999, None), ("en\x00", None), ("en-HK", "en"), ("zh-Hans-HK", "zh"),
        ("zh-HK", None),
    ],
)  # fmt: skip
def test_codes_of_languages_are_read_as_clients_write_them(code: str, found: str | None):
    assert find_language(code, ["en", "zh"]) == found
    if code.startswith("zh-"):
        assert find_language(code, ["zh", "zh-Hant"]) == ("zh-Hant" if found is None else "zh")


def upper(html: str) -> str:
    document = HtmlText(html)
    return document.translated({text: text.upper() for text in document.wanted})


@pytest.mark.parametrize(
    ("html", "found"),
    [
        ("<p>one</p>", "<p>ONE</p>"),
        ("a <b>b</b> c", "A <b>B</b> C"),
        ('<a href="x?a=1&b=2">a <i>b</i> c</a>!', '<a href="x?a=1&b=2">A <i>B</i> C</a>!'),
        ("<p>\n  two\n  lines\n</p>", "<p>\n  TWO LINES\n</p>"),
        ("<script>if (a < b) {}</script>x", "<script>if (a < b) {}</script>X"),
        ('<p translate="no">x</p>y', '<p translate="no">x</p>Y'),
        ('<i class="a notranslate">x</i>y', '<i class="a notranslate">x</i>Y'),
        ("1 &lt; 2 &amp; é &eacute;", "1 &lt; 2 &amp; É É"),
        ("<!DOCTYPE html><!-- c --><br/>x", "<!DOCTYPE html><!-- c --><br/>X"),
        ("<b>unclosed", "<b>UNCLOSED"),
        ("x</b>", "X</b>"),
        ("", ""),
    ],
)  # fmt: skip
def test_tags_stay_where_their_text_is(html: str, found: str):
    assert upper(html) == found


@pytest.mark.parametrize(
    ("html", "found"),
    [
        ("<p>AT&T and R&D</p>", "<p>AT&amp;T AND R&amp;D</p>"),
        ("AT&T", "AT&amp;T"),
        ("<P>x</P ><![CDATA[y]]><!--z-->", "<P>X</P ><![CDATA[y]]><!--z-->"),
        ("<!DOCTYPE html>\n<?x y?>z", "<!DOCTYPE html>\n<?x y?>Z"),
        ("a<br\n/>b", "A<br\n/>B"),
        ("<code>a &lt; b &nbsp c</code>d", "<code>a &lt; b &nbsp c</code>D"),
        ('see <b>this</b> now <i class="icon"></i>', 'SEE <b>THIS</b> NOW <i class="icon"></i>'),
        ('<i class="icon"></i> see <b>this</b>', '<i class="icon"></i> SEE <b>THIS</b>'),
        ('<a><i class="icon"></i>this</a> one', '<a><i class="icon"></i>THIS</a> ONE'),
        ('<img translate="no" src=x> a', '<img translate="no" src=x> A'),
        ('<br class="notranslate">a', '<br class="notranslate">A'),
    ],
)  # fmt: skip
def test_what_is_no_text_stays_as_it_was_sent(html: str, found: str):
    assert upper(html) == found


@pytest.mark.parametrize("html", ["<a ", "<a x=", '<a "', "<!--", "<![x["])
def test_tags_that_never_close_cost_time_in_proportion_to_their_number(html: str):
    for document in (html * 4000, html * 4000 + ">"):
        before = time.process_time()
        HtmlText(document)
        assert time.process_time() - before < 3  # with the square of their number, half a minute


@pytest.mark.parametrize("html", ["<![foo[bar]]>", "<![ x", "a <![%x; b>c"])
def test_sections_that_nobody_knows_are_no_error(html: str):
    assert unescape(HtmlText(html).translated({})) == html


def test_lines_of_a_file_are_no_fields_of_its_form():
    text = b"-- item\r\n" * 70
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
    found = _multipart("multipart/form-data; boundary=b", head + text + b"\r\n--b--\r\n")
    assert found == {"file": SentFile("a.txt", text)}


@pytest.mark.parametrize(
    "body",
    [
        b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\nx\r\n' * 65 + b"--b--\r\n",
        b"\n--b\n" * 60_000,
        b"--b\r\n" + b"x: y\r\n" * 60_000 + b"\r\n\r\n--b--\r\n",
        b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\nnot closed',
    ],
)
def test_a_form_of_too_many_parts_or_none_is_refused_at_once(body: bytes):
    before = time.process_time()
    with pytest.raises(RequestError, match="the form "):
        _multipart("multipart/form-data; boundary=b", body)
    assert time.process_time() - before < 1


def test_a_language_that_cannot_be_detected_is_known_as_such():
    detector = Detector()
    assert detector.unknown(["en", "zh-Hant", "nb", "deu", "yi"]) == ["deu", "yi"]
    assert detector.ranked("Guten Tag, wie geht es Ihnen?", ["EN", "DE"])[0][0] == "DE"


def test_a_tag_whose_text_is_not_found_keeps_its_place():
    document = HtmlText("I <b>love</b> you")
    known = {"I love you": "ti amo", "love": "amore", "I ": "io ", " you": " tu"}
    assert document.translated(known) == "io <b>amore</b> tu"
    assert document.translated({**known, "love": "amo"}) == "ti <b>amo</b>"


def test_a_stop_that_comes_in_pieces_is_never_shown():
    stop = StopAt(["END", "\n\n"])
    assert [stop.push(piece) for piece in ("abE", "Nx", "\n", "y", "zEN")] == [
        ("ab", False), ("ENx", False), ("", False), ("\ny", False), ("z", False),
    ]  # fmt: skip
    assert stop.push("D more") == ("", True)
    assert StopAt(["abc"]).push("xab", last=True) == ("xab", False)


def test_files_have_names_of_the_server(tmp_path: Path):
    stored = StoredFiles(tmp_path)
    name = stored.put(b"text", "a client")
    assert stored.get(name) == b"text"
    for wrong in ("../" + name, name[:-4], "x", "0" * 32 + ".txt", name + "\n"):
        assert stored.get(wrong) is None


def test_files_make_no_place_for_those_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stored_files, "MAX_FILES_OF_A_CLIENT", 2)
    monkeypatch.setattr(stored_files, "MAX_FILES", 3)
    stored = StoredFiles(tmp_path)
    names = [stored.put(b"1", "first"), stored.put(b"2", "first")]
    with pytest.raises(RequestError, match="you have 2 translated files") as refused:
        stored.put(b"3", "first")
    assert refused.value.status == 429 and refused.value.retry_after in (599, 600)
    names.append(stored.put(b"3", "second"))
    with pytest.raises(RequestError, match="there are 3 translated files") as refused:
        stored.put(b"4", "third")
    assert refused.value.status == 503
    assert [stored.get(name) for name in names] == [b"1", b"2", b"3"]
    monkeypatch.setattr(stored_files, "KEPT_SECONDS", -1)
    stored.put(b"4", "third")
    assert [stored.get(name) for name in names] == [None] * 3


@pytest.mark.parametrize("number", ["65", "065", "0" * 5000 + "65", "65;", "0" * 5000 + "65;"])
def test_a_character_may_be_given_by_a_number(number: str):
    assert HtmlText(f"&#{number} <b>").wanted == ["A "]


def test_limits_are_checked():
    assert Limits(max_characters=5).max_body > 5
    for wrong in ({"max_characters": 0}, {"seconds": 0.5}, {"max_texts": True}):
        with pytest.raises(ConfigError, match="must be at least 1"):
            Limits(**wrong)


def said(text: str) -> Output:
    tokenizer: Any = None  # nobody asks for the pieces
    return Output(text=text, tokens=[], log_probs=[], score=0.0, stop="end", tokenizer=tokenizer)


class Model:
    """Records what it is given; waits while it is held."""

    def __init__(self, seconds_per_sentence: float = 0) -> None:
        self.batches: list[list[int]] = []
        self.seconds_per_sentence = seconds_per_sentence
        self.free = threading.Event()
        self.free.set()

    def __call__(self, sources: Sequence[EncodedSource], n_best: int) -> list[AnsweredText]:
        self.free.wait(10)
        time.sleep(self.seconds_per_sentence * len(sources))
        self.batches.append([source.tokens[0] for source in sources])
        if any(source.tokens[0] == 666 for source in sources):
            raise RuntimeError("planted")
        return [AnsweredText(source.tokens, 0, [said(str(source.tokens[0]))]) for source in sources]


def of(name: int, n: int, size: int = 10) -> list[EncodedSource]:
    return [EncodedSource([name] * size, 0)] * n


def run_batcher(limits: Limits, story, seconds_per_sentence: float = 0) -> Model:
    model = Model(seconds_per_sentence)

    async def run() -> None:
        batcher = Batcher("m", model, limits, Metrics())
        try:
            async with asyncio.timeout(10):
                await story(batcher, model)
            assert batcher.n_tokens == batcher.short.n_sentences == batcher.long.n_sentences == 0
        finally:
            model.free.set()
            await batcher.close()

    asyncio.run(run())
    return model


def test_requests_that_wait_run_together_and_take_turns():
    async def story(batcher: Batcher, model: Model) -> None:
        model.free.clear()
        first = asyncio.create_task(batcher.answer(of(1, 1), 1))
        await asyncio.sleep(0.05)
        long = asyncio.create_task(batcher.answer(of(2, 20), 1))
        await asyncio.sleep(0.01)
        short = asyncio.create_task(batcher.answer(of(3, 2), 1))
        other = asyncio.create_task(batcher.answer(of(4, 1), 3))
        await asyncio.sleep(0.01)
        model.free.set()
        assert [each.texts for each in await short] == [["3"], ["3"]]
        assert not long.done()
        assert len(await long) == 20 and len(await first) == len(await other) == 1

    model = run_batcher(Limits(batch_tokens=60, short_tokens=1000), story)
    assert model.batches[0] == [1]
    assert model.batches[1] == [2, 3, 2, 3, 2, 2]
    assert [4] in model.batches, "another number of translations is a batch of its own"
    assert all(10 * len(batch) <= 60 for batch in model.batches)


def test_a_short_request_does_not_wait_for_a_batch_of_long_ones():
    async def story(batcher: Batcher, model: Model) -> None:
        long = [asyncio.create_task(batcher.answer(of(name, 900), 1)) for name in (1, 2)]
        await asyncio.sleep(0.05)
        for _ in range(5):
            started = time.perf_counter()
            await batcher.answer(of(3, 1), 1)
            assert time.perf_counter() - started < 1
        assert not any(task.done() for task in long)
        for task in long:
            task.cancel()
        await asyncio.gather(*long, return_exceptions=True)

    model = run_batcher(Limits(batch_seconds=5), story, seconds_per_sentence=0.1)
    assert model.batches.count([3]) == 5, "they do not share a batch with long requests either"


def test_batches_of_long_requests_are_bounded_by_time():
    async def story(batcher: Batcher, model: Model) -> None:
        first = asyncio.create_task(batcher.answer(of(1, 60), 1))
        await asyncio.sleep(0)
        await asyncio.gather(first, batcher.answer(of(2, 15), 1))

    model = run_batcher(Limits(batch_seconds=0.1), story, seconds_per_sentence=0.01)
    assert all(len(batch) <= 20 for batch in model.batches), "512 tokens would be 51 sentences"
    assert max(map(len, model.batches)) >= 5
    second = [batch for batch in model.batches if 2 in batch]
    assert all(1 in batch for batch in second), "both take turns"


def test_a_full_queue_refuses_and_recovers():
    async def story(batcher: Batcher, model: Model) -> None:
        model.free.clear()
        begun = asyncio.create_task(batcher.answer(of(1, 1), 1))
        await asyncio.sleep(0.05)
        waiting = asyncio.create_task(batcher.answer(of(2, 9), 1))
        await asyncio.sleep(0.01)
        with pytest.raises(RequestError) as refused:
            await batcher.answer(of(3, 2), 1)
        assert refused.value.status == 503 and (refused.value.retry_after or 0) >= 1
        model.free.set()
        await begun
        await waiting
        assert len(await batcher.answer(of(3, 30), 1)) == 30, "alone, a long text is taken"

    run_batcher(Limits(max_waiting=100), story)


def test_what_is_cancelled_before_it_begins_never_runs():
    async def story(batcher: Batcher, model: Model) -> None:
        model.free.clear()
        begun = asyncio.create_task(batcher.answer(of(1, 1), 1))
        await asyncio.sleep(0.05)
        left = asyncio.create_task(batcher.answer(of(2, 50), 1))
        stays = asyncio.create_task(batcher.answer(of(3, 1), 1))
        await asyncio.sleep(0.01)
        left.cancel()
        await asyncio.sleep(0)
        model.free.set()
        await begun
        await stays

    assert run_batcher(Limits(short_tokens=1000), story).batches == [[1], [3]]


def test_a_batch_that_fails_costs_its_own_requests_only():
    async def story(batcher: Batcher, model: Model) -> None:
        with pytest.raises(RuntimeError, match="planted"):
            await batcher.answer(of(666, 500), 1)
        assert len(await batcher.answer(of(5, 3), 1)) == 3

    run_batcher(Limits(batch_tokens=50), story)


def test_a_lone_request_does_not_wait_for_others():
    async def story(batcher: Batcher, model: Model) -> None:
        started = time.perf_counter()
        for _ in range(20):
            await batcher.answer(of(1, 1), 1)
        assert time.perf_counter() - started < 20 * 0.5

    run_batcher(Limits(batch_ms=1000), story)


def test_a_completion_begins_as_the_documents_of_training_did():
    tokenizer = train_bpe(["a dog"] * 9, 270)
    codec = Codec(source=tokenizer, target=tokenizer, ids=TokenIds(prompt_start=1))
    model = SimpleNamespace(config=SimpleNamespace(max_length=20))
    decoder: Any = SimpleNamespace(name="one", model=model, codec=codec)
    nobody: Any = None
    home = Completions([decoder], Limits(), Metrics(), authorise=nobody, wait=nobody)
    asked = home._asked({"model": "one", "prompt": "a dog"})  # pyright: ignore
    assert [prompt.tokens for prompt in asked.prompts] == [[1, *tokenizer.encode("a dog")]]


def test_a_completion_that_is_asked_elsewhere_or_as_a_chat_is_led_to_its_place():
    nobody: Any = None
    decoder: Any = SimpleNamespace(name="plays")
    others = {"en-zh": "POST /translate", "moods": "POST /classify"}
    home = Completions([decoder], Limits(), Metrics(), authorise=nobody, wait=nobody, others=others)
    for name, address in others.items():
        message = rf"'{name}' does not .* to {address} \(models that continue text: 'plays'\)"
        with pytest.raises(RequestError, match=message):
            home._asked({"model": name, "prompt": "a"})  # pyright: ignore
    with pytest.raises(RequestError, match=r"no field 'messages'; .* the field 'prompt'"):
        home._asked({"model": "plays", "messages": []})  # pyright: ignore
    with pytest.raises(RequestError, match=r"choose one of 'max_tokens', 'min_p'"):
        home._asked({"model": "plays", "zzz": 1})  # pyright: ignore


def test_a_server_without_classifiers_says_so_whatever_is_sent():
    home = Classification([], Limits(), authorise=lambda *_: "", wait=lambda *_: None)  # type: ignore[arg-type]
    request = Request({"type": "http", "headers": [], "query_string": b""})
    with pytest.raises(RequestError, match=r"this server has no classifier; start it with one$"):
        asyncio.run(home.classify(request))


def test_a_field_that_is_missing_and_a_body_that_is_not_json_say_what_is_wanted():
    with pytest.raises(RequestError, match=r"'target' is missing; it holds the code: zh$"):
        text_field({}, "target", holds="the code: zh")
    with pytest.raises(RequestError, match=r'not JSON; .* in double quotes, such as {"name":'):
        read_json_object(b"{'q': 'Hello.'}")


def test_a_page_of_another_site_is_told_the_option_that_would_allow_it():
    sent = Headers({"host": "127.0.0.1:8000", "origin": "http://localhost:3000"})
    reason = Callers("127.0.0.1", option="--allow-origin").reason_to_refuse(sent)
    assert reason == (
        "pages of http://localhost:3000 may not use this server; start the server with "
        "--allow-origin http://localhost:3000"
    )
    reason = Callers("127.0.0.1").reason_to_refuse(sent)  # of the live page, which has no option
    assert reason == "pages of http://localhost:3000 may not use this server"


def test_a_client_that_leaves_before_the_first_piece_holds_no_part_of_the_queue():
    async def left() -> int:
        nobody: Any = None
        home = Completions([], Limits(), Metrics(), authorise=nobody, wait=nobody)
        decoder: Any = SimpleNamespace(name="one")
        asked = Asked(decoder, [], GenerateConfig(max_new=5), 7, [], stream=True, usage=False)
        run = RunningCompletion(home, asked)
        assert home.n_tokens == 7

        async def gone() -> dict[str, Any]:
            return {"type": "http.disconnect"}

        async def unread(_: Any) -> None:
            """The client does not even take the head of the answer."""
            await asyncio.Event().wait()

        scope: dict[str, Any] = {"type": "http", "asgi": {"spec_version": "2.3"}}  # as uvicorn says
        await CompletionStream(run)(scope, gone, unread)
        return home.n_tokens

    assert asyncio.run(left()) == 0


def test_a_model_that_fails_in_the_middle_of_a_stream_ends_it_with_an_error_event(
    monkeypatch: pytest.MonkeyPatch,
):
    def fails_after_one(*_: Any) -> Iterator[StreamedPiece]:
        yield StreamedPiece(0, "a", 1, None)
        raise ModelError("the model computes NaN; train it again")

    async def stream() -> list[str]:
        nobody: Any = None
        home = Completions([], Limits(), Metrics(), authorise=nobody, wait=nobody)
        decoder: Any = SimpleNamespace(name="one", model=None, codec=None)
        prompt = SeededPrompt([1], 1)
        asked = Asked(decoder, [prompt], GenerateConfig(), 1, [], stream=True, usage=False)
        run = RunningCompletion(home, asked)
        return [event.decode() async for event in completions._events(run)]  # pyright: ignore

    monkeypatch.setattr(completions, "stream_prompts", fails_after_one)
    first, error, done = asyncio.run(stream())
    assert '"text": "a"' in first and done == "data: [DONE]\n\n"
    assert '"type": "server_error"' in error and "computes NaN" in error


def test_an_error_of_the_model_or_its_folder_is_the_fault_of_the_server():
    assert status_of(ModelError("NaN")) == status_of(FolderError("damaged")) == 500
    assert status_of(InputError("too long")) == status_of(ConfigError("a", 1, "b", "c")) == 400


def test_the_figures_of_a_worker_that_has_ended_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    ended, running = (tmp_path / f"gauge_livesum_{number}.db" for number in (123, 124))
    for file in (ended, running):
        file.write_bytes(b"")
    forget_worker(123)  # one worker alone has no such files
    assert ended.exists()
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    forget_worker(123)
    assert not ended.exists() and running.exists()


def test_a_site_is_allowed_as_it_is_copied_from_a_browser():
    for given in ("https://Example.org/", "https://example.org", " https://example.org"):
        assert serving_api._origin(given) == "https://example.org"
    assert serving_api._origin("moz-extension://1-2") == "moz-extension://1-2"
    for wrong in ("example.org", "https://example.org/page", ""):
        with pytest.raises(ConfigError, match=r"write it like https://example\.org"):
            serving_api._origin(wrong)


def test_a_file_of_keys_may_begin_with_a_byte_order_mark(tmp_path: Path):
    (tmp_path / "keys").write_bytes("one\r\ntwo\r\n".encode("utf-8-sig"))
    assert serving_api._keys(tmp_path / "keys") == ["one", "two"]


def test_a_decoder_that_translates_is_not_served(tmp_path: Path):
    ch.save_model(ch.build_model("tiny-decoder"), tmp_path / "de-en", ids=TokenIds(target_start=1))
    with pytest.raises(FolderError, match=r"use the decoder with: model\.translate\(…\)"):
        ch.serve(tmp_path / "de-en")


def test_a_decoder_that_cannot_be_opened_is_said_before_the_port_is_taken(tmp_path: Path):
    ch.save_model(ch.build_model("tiny-decoder"), tmp_path / "lm")
    with pytest.raises(FolderError, match=r"tokenizer\.json"):
        ch.serve(tmp_path / "lm")


def test_parts_of_ones_own_are_not_served(tmp_path: Path):
    class Halves(nn.Module):
        def __init__(self, config: ch.ModelConfig):
            super().__init__()

        def forward(self, x):
            return x / 2

    ch.save_model(ch.build_model("tiny-decoder", norm=Halves), tmp_path / "lm")
    with pytest.raises(FolderError, match="which the server does not know"):
        ch.serve(tmp_path / "lm")


def test_a_form_may_hold_text_that_is_not_escaped():
    body = "q=你好 schön&source=zh&target=%64e".encode()
    assert _form(body) == {"q": "你好 schön", "source": "zh", "target": "de"}


def test_a_tag_does_not_cut_a_number():
    document = HtmlText("10 Hunde und <b>1</b> Katze")
    known = {text: text for text in document.wanted}
    whole = "10 Hunde und 1 Katze"
    assert document.translated({**known, whole: "10 dogs and 1 cat"}) == "10 dogs and <b>1</b> cat"
    assert document.translated({**known, whole: "10 dogs, a cat"}) == "10 Hunde und <b>1</b> Katze"
    found = document.translated({**known, whole: "1.5 dogs and 1 cat"})
    assert found == "1.5 dogs and <b>1</b> cat"


def test_a_server_is_not_started_beside_a_notebook_or_in_a_thread(tmp_path: Path):
    async def in_a_notebook() -> None:
        ch.serve(tmp_path)

    with pytest.raises(ch.ClearheadError, match="run it in a terminal"):
        asyncio.run(in_a_notebook())
    said: list[str] = []

    def in_a_thread() -> None:
        with pytest.raises(ch.ClearheadError) as caught:
            ch.serve(tmp_path)
        said.append(str(caught.value))

    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
    assert "run it in a terminal" in said[0]

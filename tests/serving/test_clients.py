"""Clients that other people wrote, unmodified, against a real server process."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openai", reason="needs the extra dev")
pytest.importorskip("libretranslatepy", reason="needs the extra dev")

import libretranslatepy
import openai

import clearhead as ch
from tests.serving.process import RunningServer

pytestmark = pytest.mark.slow  # a server and its clients

DOCS = Path(__file__).parent.parent.parent / "docs"
TEXTS = [
    "ein Hund läuft.",
    "Ein Hund läuft. Er ist groß! Ist er grün?",
    "  zwei\nZeilen. Und mehr.\r\n\r\nEnde  ",
    "你好。世界？你好！",
    "a" * 300,
    "Dr. Hund kostet 3.50 € usw. <b>&amp;</b>",
    "\x00\x07\u200b🦜 tab\there",
    "",
    " \n ",
]


@pytest.fixture(scope="module")
def libre(server: RunningServer):
    return libretranslatepy.LibreTranslateAPI(server.url)


@pytest.fixture(scope="module")
def client(server: RunningServer):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def test_texts_are_those_of_translate(libre, server: RunningServer, models: Path):
    own = ch.load(models / "random-de-zh")
    expected = own.translate(
        [text for text in TEXTS if text.strip()],
        engine="ctranslate2", engine_folder=models / "cache" / "ctranslate2", split="de-zh",
        max_new=20,
    )  # fmt: skip
    expected = iter(expected)
    expected = [next(expected) if text.strip() else text for text in TEXTS]
    assert len(set(expected)) > 6
    assert [libre.translate(text, "de", "zh") for text in TEXTS] == expected
    status, whole = server.ask("/translate", {"q": TEXTS, "source": "de", "target": "zh"})
    assert status == 200 and whole == {"translatedText": expected}


def test_one_sentence_is_translated_as_without_split(libre, models: Path):
    own, folder = ch.load(models / "random-de-zh"), models / "cache" / "ctranslate2"
    text = "a green dog"
    expected = own.translate(text, engine="ctranslate2", engine_folder=folder, max_new=20)
    assert libre.translate(text, "de", "zh") == expected


def test_libretranslatepy_reaches_every_endpoint_that_it_knows(libre):
    assert libre.translate("clearhead2026", "en", "eo") == "clearhead2026"
    assert libre.detect("Der Hund läuft über die grüne Wiese.")[0]["language"] == "de"
    by_code = {each["code"]: each for each in libre.languages()}
    assert by_code["de"] == {"code": "de", "name": "German", "targets": ["zh"]}
    assert by_code["eo"]["targets"] == []


def test_alternatives_are_the_next_best_translations(server: RunningServer, models: Path):
    own, folder = ch.load(models / "random-de-zh"), models / "cache" / "ctranslate2"
    expected = own.translations(
        "ein Hund", n_best=3, engine="ctranslate2", engine_folder=folder, max_new=20
    )
    asked = {"q": "ein Hund", "source": "de", "target": "zh", "alternatives": 2}
    best, *others = (output.text for output in expected)
    assert server.ask("/translate", asked)[1] == {"translatedText": best, "alternatives": others}


def test_confidence_is_given_to_who_asks_for_it(server: RunningServer, models: Path):
    own, folder = ch.load(models / "random-de-zh"), models / "cache" / "ctranslate2"
    asked = {"q": ["ein Hund. Er ist groß!", " "], "source": "de", "target": "zh"}
    expected = own.translations(
        asked["q"][0], engine="ctranslate2", engine_folder=folder, split="de-zh", max_new=20
    )
    sure = expected[0].confidence
    assert sure is not None and 0 < sure < 1
    plain = server.ask("/translate", asked)[1]
    status, found = server.ask("/translate", {**asked, "confidence": True})
    assert (status, found) == (200, plain | {"confidence": [pytest.approx(sure, abs=1e-4), None]})
    one = server.ask("/translate", {**asked, "q": "ein Hund", "confidence": "true"})[1]
    assert 0 < one["confidence"] < 1
    for wrong, reason in [
        ({"confidence": 2}, "must be true or false"),
        ({"confidence": [1]}, "must be true or false"),
        ({"confidence": True, "format": "html"}, "confidence is for texts"),
        ({"confidence": True, "source": "en"}, "en-zh is not calibrated"),
    ]:
        status, refused = server.ask("/translate", asked | wrong)
        assert status == 400 and reason in refused["error"]


def test_the_source_language_is_detected(server: RunningServer):
    text = "Der Hund läuft über die grüne Wiese und bellt."
    status, found = server.ask("/translate", {"q": text, "source": "auto", "target": "zh"})
    assert status == 200 and found["detectedLanguage"]["language"] == "de"
    status, found = server.ask("/translate", {"q": [text, text], "target": "zh-CN"})
    assert [each["language"] for each in found["detectedLanguage"]] == ["de", "de"]
    chinese = {"q": "你好，世界。", "source": "auto", "target": "zh_Hans"}
    assert server.ask("/translate", chinese)[1]["translatedText"] == "你好，世界。"
    marked = f'<div class="post-content" id="the-main-content"><p class="lead">{text}</p></div>'
    asked = {"q": marked, "source": None, "target": "zh", "format": "html"}
    status, found = server.ask("/translate", asked)
    assert status == 200 and found["detectedLanguage"]["language"] == "de"
    assert server.ask("/translate", {**asked, "format": ""})[0] == 200


def test_a_file_is_translated_and_fetched(server: RunningServer, libre):
    body = (
        b'--b\r\nContent-Disposition: form-data; name="source"\r\n\r\nde\r\n'
        b'--b\r\nContent-Disposition: form-data; name="target"\r\n\r\nzh\r\n'
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="../../etc/x.txt"\r\n'
        b"Content-Type: text/plain\r\n\r\nein Hund.\nzwei Hunde.\n\r\n--b--\r\n"
    )
    headers = {"content-type": "multipart/form-data; boundary=b"}
    status, found = server.ask("/translate_file", body, headers=headers)
    assert status == 200
    path = found["translatedFileUrl"].removeprefix(server.url)
    assert server.ask(path) == (200, libre.translate("ein Hund.\nzwei Hunde.\n", "de", "zh"))
    assert server.ask("/download_file/..%2f..%2fetc%2fpasswd")[0] == 404
    assert server.ask(f"/download_file/{'0' * 32}.txt")[0] == 404


def test_settings_say_what_a_frontend_needs(server: RunningServer):
    status, found = server.ask("/frontend/settings")
    assert status == 200 and found["charLimit"] == 20_000 and found["keyRequired"] is False


def test_openai_lists_the_decoders(client):
    assert [model.id for model in client.models.list()] == ["shakespeare-char"]
    assert client.models.retrieve("shakespeare-char").owned_by == "clearhead"
    with pytest.raises(openai.NotFoundError, match="did you mean 'shakespeare-char'"):
        client.models.retrieve("shakespear")


def test_a_completion_is_what_generate_gives(client):
    own = ch.load("shakespeare-char")
    asked = {"model": "shakespeare-char", "prompt": "ROMEO:", "max_tokens": 30}
    found = client.completions.create(**asked, temperature=0)
    assert found.choices[0].text == own.generate("ROMEO:", max_new=30, temperature=0)
    assert found.choices[0].finish_reason == "length"
    assert found.usage.prompt_tokens == 6 and found.usage.completion_tokens == 30
    every = {"top_k": -1}  # what other servers take for every token
    drawn = client.completions.create(**asked, seed=7, n=2, top_p=0.9, extra_body=every)
    expected = own.generate(["ROMEO:"] * 2, max_new=30, seed=7, top_p=0.9)
    assert [choice.text for choice in drawn.choices] == expected
    assert expected[0] != expected[1]


def test_what_comes_behind_a_stop_is_not_counted(client):
    asked = {"model": "shakespeare-char", "prompt": "ROMEO:", "max_tokens": 20, "seed": 1}
    found = client.completions.create(**asked, n=2, stop="e")
    ends = [len(choice.text) + 1 for choice in found.choices]  # a token is a character
    assert found.usage.completion_tokens <= sum(ends)


@pytest.mark.parametrize("given", [{"top_p": 0}, {"seed": -1}, {"seed": 2**60}])
def test_what_openai_takes_is_taken(client, given: dict[str, Any]):
    asked = {"model": "shakespeare-char", "prompt": "ROMEO:", "max_tokens": 5}
    found = client.completions.create(**asked, **given)
    assert found.choices[0].text
    if "top_p" in given:
        likeliest = client.completions.create(**asked, temperature=0)
        assert found.choices[0].text == likeliest.choices[0].text


def test_a_stream_is_the_same_text_in_pieces(client):
    asked = {"model": "shakespeare-char", "prompt": ["ROMEO:", "JULIET:"], "max_tokens": 25}
    whole = client.completions.create(**asked, seed=3)
    pieces = list(
        client.completions.create(
            **asked, seed=3, stream=True, stream_options={"include_usage": True}
        )
    )
    texts = ["", ""]
    for piece in pieces:
        for choice in piece.choices:
            texts[choice.index] += choice.text
    assert texts == [choice.text for choice in whole.choices]
    assert len(pieces) > 20 and pieces[-1].usage == whole.usage


def test_a_stop_ends_the_text_before_it(client):
    asked = {"model": "shakespeare-char", "prompt": "ROMEO:", "max_tokens": 60, "temperature": 0}
    whole = client.completions.create(**asked).choices[0].text
    stop = whole[20:24]
    found = client.completions.create(**asked, stop=[stop, "never"]).choices[0]
    assert found.text == whole[: whole.index(stop)] and found.finish_reason == "stop"
    pieces = client.completions.create(**asked, stop=stop, stream=True)
    assert "".join(piece.choices[0].text for piece in pieces) == found.text


def test_the_examples_of_the_guide_run(server: RunningServer):
    """The server of the tests has the two models of the guide's own, among others."""
    guide = (DOCS / "en" / "serving.md").read_text(encoding="utf-8")
    guide = guide.replace("http://127.0.0.1:8080", server.url)
    said: list[str] = []
    for language, command in (("python", [sys.executable, "-c"]), ("bash", ["bash", "-ec"])):
        for code in re.findall(rf"^```{language}\n(.*?)^```", guide, flags=re.M | re.S):
            if language == "bash" and (not code.startswith("curl") or shutil.which("curl") is None):
                continue
            run = subprocess.run([*command, code], capture_output=True, text=True)
            assert run.returncode == 0, run.stderr
            said.append(run.stdout)
    first, *_ = said[0].splitlines()
    assert "茶" in first and len(said[1]) > 50
    if len(said) > 2:
        answer, end = json.JSONDecoder().raw_decode(said[2])
        assert "茶" in answer["translatedText"][1]
        assert json.loads(said[2][end:])[0]["language"] == "de"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"max_tokens": 10**6}, "max_tokens"),
        ({"prompt": ""}, "empty"),
        ({"prompt": [1, 2]}, "string"),
        ({"logprobs": 3}, "logprobs"),
        ({"temperature": -1}, "temperature"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"extra_body": {"stream": "yes"}}, "stream"),
        ({"prompt": ["a", "x" * 500], "n": 2}, "prompt 2 has 500 tokens, .* 64; shorten it"),
    ],
)
def test_what_a_completion_cannot_do_is_refused(client, fields, reason):
    asked = {"model": "shakespeare-char", "prompt": "ROMEO:", **fields}
    with pytest.raises(openai.BadRequestError, match=reason):
        client.completions.create(**asked)

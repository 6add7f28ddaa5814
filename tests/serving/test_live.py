"""The live page's server: what it answers, whom it refuses, and what it survives."""

import copy
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from clearhead.inspection.decode_for_page import see
from clearhead.inspection.switches import see_without
from clearhead.serving.asking import MAX_BODY, MAX_CHARACTERS, LookRequest
from clearhead.serving.live import LiveModel, Snapshot
from tests.inspection.subjects import subject

pytest.importorskip("starlette")
from starlette.testclient import TestClient

from clearhead.serving.app import MAX_WAITING, live_app

TEXT = "We live in the suburbs."
HOST, KEY = "127.0.0.1:4321", "a-key"
HEAD = "decoder.layers.1.cross_attention.heads:1"


FIRST = LookRequest(text=TEXT, max_new=4)


def client(live: LiveModel) -> TestClient:
    app = live_app(live, FIRST, host="127.0.0.1", key=KEY)
    return TestClient(app, base_url=f"http://{HOST}", headers={"x-clearhead-key": KEY})


@pytest.fixture(scope="module")
def here() -> TestClient:
    return client(LiveModel(subject("encoder-decoder")))


def as_sent(document: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(document))


def test_the_page_holds_the_first_document_and_may_only_ask_its_own_server(here: TestClient):
    answer = here.get("/")
    assert answer.status_code == 200
    held = answer.headers["content-security-policy"]
    assert "default-src 'none'" in held and "connect-src 'self'" in held
    assert "frame-ancestors 'none'" in held and "unsafe" not in held
    assert answer.headers["cache-control"] == "no-store"
    text = answer.text.split('id="look">')[1].split("</script>")[0]
    document = json.loads(text)
    expected = as_sent(see(subject("encoder-decoder"), TEXT, max_new=4))
    assert {name: document[name] for name in expected} == expected
    assert HEAD in document["live"]["switches"] and document["live"]["first"]["text"] == TEXT
    assert KEY not in answer.text


@pytest.mark.parametrize("kind", ["encoder-decoder", "decoder", "encoder"])
def test_an_answer_is_what_python_sees(kind: str):
    one = subject(kind)
    here = client(LiveModel(one))
    how = {} if kind == "encoder" else {"beam": 2, "max_new": 5}
    answer = here.post("/api/look", json={"text": "The bride", **how})
    assert answer.status_code == 200
    assert answer.json() == as_sent(see(one, "The bride", **how))
    off = [f"{'encoder' if kind == 'encoder' else 'decoder'}.layers.0.self_attention.heads:1"]
    for replace in ("zero", "mean"):
        body = {"text": "The bride", "off": off, "replace": replace, **how}
        expected = see_without(one, "The bride", off, replace=replace, **how)
        assert here.post("/api/look", json=body).json() == as_sent(expected)


def test_drawing_at_a_temperature_depends_on_the_seed():
    here = client(LiveModel(subject("decoder")))
    body = {"text": "We", "temperature": 2.0, "max_new": 12}
    texts = [here.post("/api/look", json={**body, "seed": s}).json()["text"] for s in (0, 0, 1)]
    assert texts[0] == texts[1] != texts[2]


def test_a_checkpoint_shows_its_own_weights_and_the_model_comes_back():
    one = subject("encoder-decoder")
    own = {name: p.detach().clone() for name, p in one.model.named_parameters()}
    other = {name: 0.5 * p for name, p in own.items()}
    n_read: list[int] = []
    snapshots = [Snapshot(7, lambda: (n_read.append(7), other)[1]), Snapshot(12, lambda: own)]
    model = copy.deepcopy(one.model)
    here, how = client(LiveModel(one._replace(model=model), snapshots)), {"max_new": 4}
    earlier = copy.deepcopy(one.model)
    with torch.no_grad():
        for name, parameter in earlier.named_parameters():
            parameter.copy_(other[name])
    expected = as_sent(see(one._replace(model=earlier), TEXT, **how))
    final = as_sent(see(one, TEXT, **how))
    for step, document in ((7, expected), (None, final), (7, expected), (12, final)):
        found = here.post("/api/look", json={"text": TEXT, "checkpoint": step, **how}).json()
        assert found == document, step
    assert n_read == [7]
    answer = here.post("/api/look", json={"text": TEXT, "checkpoint": 8})
    assert answer.status_code == 400 and "choose from [7, 12]" in answer.json()["error"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 403),
        ({"host": "evil.example:4321"}, 403),
        ({"host": "127.0.0.1.evil.example:4321"}, 403),
        ({"host": "localhost.evil.example:4321"}, 403),
        ({"host": "[::1", "origin": "http://[::1"}, 403),
        ({"host": ""}, 403),
        ({"host": "192.168.0.7:4321"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:4322"}, 403),  # another server of this machine
        ({"origin": "http://localhost:4321"}, 403),
        ({"origin": f"http://{HOST}.evil.example"}, 403),
        ({"host": "localhost:8080", "origin": "http://localhost:8080"}, 200),  # through a tunnel
        ({"host": "[::1]:4321", "origin": "http://[::1]:4321"}, 200),
        ({"x-clearhead-key": "another"}, 403),
        ({"x-clearhead-key": ""}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"origin": f"http://{HOST}"}, 200),
    ],
    ids=str,
)
def test_only_the_own_page_is_answered(here: TestClient, headers: dict[str, str], status: int):
    body = json.dumps({"text": TEXT, "max_new": 2})
    given = {"content-type": "application/json", **headers}
    answer = here.post("/api/look", content=body, headers=given)
    assert answer.status_code == status
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in answer.headers
    if "host" in headers or "origin" in headers:
        assert here.get("/", headers=headers).status_code == status


@pytest.mark.parametrize(
    ("body", "status", "complaint"),
    [
        ("{", 400, "not JSON"),
        ("[" * 9000, 400, "not JSON"),
        ("[]", 400, "no text"),
        ('{"beam": 2}', 400, "no text"),
        ('{"text": 3}', 400, "must be a string"),
        ('{"text": "  "}', 400, "is empty"),
        ('{"text": "a", "target": ["b"]}', 400, "must be a string"),
        ('{"text": "a", "model": "/etc/passwd"}', 400, "has no 'model'"),
        ('{"text": "a", "beam": 9}', 400, "from 1 to 8"),
        ('{"text": "a", "beam": true}', 400, "from 1 to 8"),
        ('{"text": "a", "beam": 2, "temperature": 1}', 400, "choose one"),
        ('{"text": "a", "max_new": 129}', 400, "from 1 to 128"),
        ('{"text": "a", "seed": -1}', 400, "from 0"),
        ('{"text": "a", "temperature": NaN}', 400, "must be 0 to 5"),
        ('{"text": "a", "temperature": "hot"}', 400, "must be a number"),
        ('{"text": "a", "checkpoint": 1e9}', 400, "whole number"),
        ('{"text": "a", "off": "x"}', 400, "list of names"),
        ('{"text": "a", "off": [[]]}', 400, "must be names; write them in quotes"),
        ('{"text": "a", "off": ["logits"]}', 400, "cannot be switched off"),
        (json.dumps({"text": "a", "off": ["x"] * 65}), 400, "at most 64 names"),
        ('{"text": "a", "replace": "median"}', 400, "is not a valid choice"),
        ('{"text": "a", "language": "<b>"}', 400, "is not a valid choice"),
        (json.dumps({"text": "a" * (MAX_CHARACTERS + 1)}), 400, "2000 are allowed"),
        (json.dumps({"text": "a b " * 300}), 400, "the live page takes at most 128"),
        ("x" * (MAX_BODY + 1), 413, "more than 16384 bytes"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_what_is_out_of_bounds_is_refused_with_what_to_do(
    here: TestClient, body: str, status: int, complaint: str
):
    answer = here.post("/api/look", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status
    assert complaint in answer.json()["error"]
    assert here.get("/health").text == "ready\n"


def test_no_file_and_no_other_method_is_served(here: TestClient):
    for path in (
        "/static/main.js",
        "/../../etc/passwd",
        "/api",
        "/api/models",
        "/%2e%2e/README.md",
    ):
        assert here.get(path).status_code == 404
    assert here.get("/api/look").status_code == 405
    assert here.put("/api/look").status_code == 405


def test_a_request_that_takes_too_long_is_ended_and_leaves_nothing_on_the_model():
    one = subject("encoder-decoder")
    live = LiveModel(one)
    here = client(live)
    live.seconds = 0.0
    answer = here.post("/api/look", json={"text": TEXT, "off": [HEAD]})
    assert answer.status_code == 504 and "shorten the text" in answer.json()["error"]
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in one.model.modules())
    live.seconds = 10.0
    assert here.post("/api/look", json={"text": TEXT, "max_new": 2}).status_code == 200


def test_many_requests_at_once_are_refused_and_the_server_still_answers():
    live, hold = LiveModel(subject("encoder-decoder")), threading.Event()
    here, answer_of = client(live), LiveModel.answer
    live.answer = lambda *given: (hold.wait(20), answer_of(live, *given))[1]  # type: ignore

    def ask(_: int) -> int:
        status = here.post("/api/look", json={"text": "We", "max_new": 2}).status_code
        if status == 503:
            hold.set()
        return status

    with here, ThreadPoolExecutor(30) as pool:
        statuses = list(pool.map(ask, range(30)))
    assert set(statuses) == {200, 503}
    assert statuses.count(200) >= 1 + MAX_WAITING
    assert here.post("/api/look", json={"text": TEXT, "max_new": 2}).status_code == 200

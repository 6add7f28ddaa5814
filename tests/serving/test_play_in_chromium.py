"""The live page in a real browser that reaches nothing but its own server: what it shows after a
click, a slider or a new sentence equals Python's numbers."""

import copy
import shutil
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import torch

from clearhead.inspection.decode_for_page import see
from clearhead.inspection.look import Subject
from clearhead.inspection.switches import see_without
from clearhead.inspection.trace import trace
from clearhead.serving.asking import LookRequest
from clearhead.serving.live import LiveModel, Snapshot
from tests.inspection.subjects import subject

playwright = pytest.importorskip("playwright.sync_api")
uvicorn = pytest.importorskip("uvicorn")
CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium"),
]
TEXT = "The bride seems pretty."
STEPS = (10, 20, 30)


class Playing(NamedTuple):
    page: Any
    subject: Subject
    models: dict[int, torch.nn.Module]
    complaints: list[str]

    def answered(self) -> None:
        self.page.wait_for_selector('.live[data-asking="false"]')


@pytest.fixture
def playing(request: pytest.FixtureRequest) -> Iterator[Playing]:
    one = subject(request.param)
    models: dict[int, torch.nn.Module] = {}
    for step in STEPS:
        models[step] = copy.deepcopy(one.model)
        with torch.no_grad():
            for parameter in models[step].parameters():
                parameter *= step / 40
    snapshots = [Snapshot(s, lambda s=s: dict(models[s].named_parameters())) for s in STEPS]
    live = LiveModel(one._replace(model=copy.deepcopy(one.model)), snapshots, seconds=100)
    from clearhead.serving.app import listen, live_app  # needs the extra `serve`

    address = listen("127.0.0.1", 0)
    first = LookRequest(text=TEXT, max_new=6)
    app = live_app(live, first, host=address.host, key=address.key)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [address.listening]})
    thread.start()
    complaints: list[str] = []
    base = address.url.split("#")[0]

    def own_only(route: Any) -> None:
        if route.request.url.startswith(base):
            route.continue_()
        else:
            complaints.append(f"asked for {route.request.url}")
            route.abort()

    try:
        with playwright.sync_playwright() as p:
            browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            context = browser.new_context(viewport={"width": 1400, "height": 1000})
            context.route("**/*", own_only)
            page = context.new_page()
            page.set_default_timeout(100_000)
            page.on("console", lambda message: complaints.append(message.text))
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.goto(address.url)
            page.wait_for_selector("html[data-ready=true]")
            assert "key" not in page.url
            yield Playing(page, one, models, complaints)
            browser.close()
    finally:
        server.should_exit = True
        thread.join(10)


def shown_weights(page: Any) -> list[float]:
    page.wait_for_selector(".numbers td")
    cells = page.eval_on_selector_all(".numbers td", "e => e.map(x => Number(x.dataset.value))")
    return cells


@pytest.mark.parametrize("playing", ["encoder-decoder"], indirect=True)
def test_a_click_switches_a_head_off_and_the_page_shows_the_effect(playing: Playing):
    page, one = playing.page, playing.subject
    page.click('[data-kind="cross"]')
    page.click('.thumb[data-layer="1"][data-head="1"]')
    name = page.get_attribute("[data-head-switch]", "data-head-switch")
    assert name == "decoder.layers.1.cross_attention.heads:1"
    page.click("[data-head-switch]")
    page.wait_for_selector("[data-before]")
    playing.answered()
    expected = see_without(one, TEXT, [name], max_new=6)
    assert page.inner_text("[data-whole]") == (expected["effect"]["text"].strip() or "∅")
    for key, field in (("data-before", "log_prob"), ("data-after", "log_prob_off")):
        found = float(page.get_attribute("[data-before]", key))
        assert found == pytest.approx(expected["effect"][field], abs=1e-5)
    ids = page.eval_on_selector_all(".strip:last-child .chip", "e => e.map(x => +x.dataset.id)")
    assert ids == [token["id"] for token in expected["tokens"]["written"]]
    assert "off" in page.get_attribute('.thumb[data-layer="1"][data-head="1"]', "class")
    sublayer = "encoder.layers.0.around_self_attention.added"
    page.click(f'[data-switch="{sublayer}"]')
    page.click('[data-replace="mean"]')
    playing.answered()
    expected = see_without(one, TEXT, [name, sublayer], replace="mean", max_new=6)
    found = float(page.get_attribute("[data-before]", "data-after"))
    assert found == pytest.approx(expected["effect"]["log_prob_off"], abs=1e-5)
    page.click("[data-all-on]")
    playing.answered()
    assert page.query_selector("[data-before]") is None
    page.keyboard.press("x")
    page.wait_for_selector("[data-before]")
    assert playing.complaints == []


@pytest.mark.parametrize("playing", ["encoder-decoder", "decoder"], indirect=True)
def test_the_slider_shows_each_checkpoints_weights(playing: Playing):
    page, one = playing.page, playing.subject
    kind = "causal"
    page.click(f'[data-kind="{kind}"]')
    page.click('.thumb[data-layer="1"][data-head="0"]')
    page.click("[data-numbers]")
    for place, step in (*enumerate(STEPS), (len(STEPS), None)):
        page.eval_on_selector(
            "#live-checkpoint",
            "(e, v) => { e.value = v; e.dispatchEvent(new Event('input', {bubbles: true})); }",
            place,
        )
        playing.answered()
        model = one.model if step is None else playing.models[step]
        document = see(one._replace(model=model), TEXT, max_new=6)
        tokens = {name: [t["id"] for t in each] for name, each in document["tokens"].items()}
        given = [torch.tensor([tokens[name]]) for name in ("source", "fed") if name in tokens]
        with torch.no_grad(), trace(model) as t:
            model(*given)
        weights = t["decoder.layers.1.self_attention.weights"][0, 0]
        assert shown_weights(page) == pytest.approx(weights.flatten().tolist(), abs=1e-5)
        label = page.inner_text("#live-checkpoint + output")
        assert label == ("the model" if step is None else f"step {step}")
    assert playing.complaints == []


@pytest.mark.parametrize("playing", ["encoder-decoder", "decoder", "encoder"], indirect=True)
def test_a_changed_sentence_and_other_settings_are_decoded_again(playing: Playing):
    page, one = playing.page, playing.subject
    page.fill("#live-text", "We <b>live</b> here 🙂")
    page.keyboard.press("Enter")
    playing.answered()

    def assert_shows(**how: Any) -> None:
        expected = see(one, "We <b>live</b> here 🙂", max_new=6, **how)
        ids = page.eval_on_selector_all(".strip:last-child .chip", "e => e.map(x => +x.dataset.id)")
        assert ids == [token["id"] for token in expected["tokens"]["written"]]
        nodes = page.eval_on_selector_all("[data-node]", "e => e.length")
        assert nodes == (len(expected["beam"]["nodes"]) if expected["beam"] else 0)

    if one.model.config.family == "encoder":
        assert_shows()
        assert page.query_selector("#live-beam") is None
    else:
        assert_shows(beam=4 if one.model.config.family == "encoder-decoder" else 1)
        page.select_option("#live-beam", "3")
        playing.answered()
        assert_shows(beam=3)
        page.select_option("#live-temperature", "1.5")
        playing.answered()
        assert page.input_value("#live-beam") == "1"
        assert_shows(temperature=1.5)
    page.fill("#live-text", "  ")
    page.keyboard.press("Enter")
    page.wait_for_selector('.live[data-asking="failed"]')
    assert "is empty" in page.inner_text(".said")
    page.click('[data-action="language"]')
    assert page.inner_text(".live [type=submit]") == "运行"
    # The browser itself notes that an answer had the status 400.
    assert [each for each in playing.complaints if "400 (Bad Request)" not in each] == []


@pytest.mark.parametrize("playing", ["decoder"], indirect=True)
def test_line_ends_stay_and_every_control_takes_the_text_in_the_box(playing: Playing):
    page, one = playing.page, playing.subject
    page.fill("#live-text", "We live")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("here")
    page.select_option("#live-beam", "2")
    playing.answered()
    expected = see(one, "We live\nhere", max_new=6, beam=2)
    ids = page.eval_on_selector_all(".strip:last-child .chip", "e => e.map(x => +x.dataset.id)")
    assert ids == [token["id"] for token in expected["tokens"]["written"]]
    assert playing.complaints == []


@pytest.mark.parametrize("playing", ["encoder-decoder"], indirect=True)
def test_switches_are_within_reach_on_a_narrow_screen_and_keys_keep_their_place(playing: Playing):
    page = playing.page
    page.focus('[data-walk="on"]')
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    assert page.inner_text(".count").startswith("3 / ")
    page.set_viewport_size({"width": 400, "height": 800})
    page.click('[data-tab="off"]')
    assert page.is_visible("#panel-off") and not page.is_visible("#panel-attention")
    page.focus("[data-switch]")
    page.keyboard.press("Enter")
    playing.answered()
    assert page.eval_on_selector("[data-switch]", "e => document.activeElement === e")
    assert playing.complaints == []

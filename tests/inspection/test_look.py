"""The document of a run, against the model itself; and the page that carries it."""

import base64
import hashlib
import json
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer as LibraryTokenizer
from tokenizers.decoders import Metaspace
from tokenizers.models import WordLevel
from torch import nn

import clearhead as ch
from clearhead import web
from clearhead.cli import main
from clearhead.config import Choice
from clearhead.decoding import score
from clearhead.decoding.sampling import probabilities
from clearhead.errors import ConfigError, InputError
from clearhead.inspection import page as page_module
from clearhead.inspection.decode_for_page import see
from clearhead.inspection.lens import logit_lens
from clearhead.inspection.page import MODULES, joined_script, page
from clearhead.inspection.trace import trace
from clearhead.inspection.walk import _source as walk_source
from clearhead.inspection.walk import walk
from clearhead.interop.model_folder import TokenIds, save_model
from clearhead.text.tokenizer import Tokenizer
from clearhead.text.visible import label_of
from tests.inspection.models import inputs_of, model_of
from tests.inspection.subjects import CONFIGS, subject

FILES = Path(page_module.__file__).parent / "page_files"
WEB = Path(web.__file__).parent / "page_files"
TEXT = "The bride seems pretty."


def array(stored: dict) -> np.ndarray:
    dtype, scale = {
        "u16": ("<u2", 65535),
        "u8": ("u1", 255),
        "u32": ("<u4", 1),
        "f32": ("<f4", 1),
    }[stored["dtype"]]
    raw = np.frombuffer(base64.b64decode(stored["base64"]), dtype).reshape(stored["shape"])
    return raw / scale if scale != 1 else raw


def rerun(kind: str, document: dict):
    """The pass that the document shows, made again from its tokens."""
    tokens = {name: [t["id"] for t in each] for name, each in document["tokens"].items()}
    given = [tokens[name] for name in ("source", "fed") if name in tokens]
    with torch.no_grad(), trace(subject(kind).model) as t:
        logits = subject(kind).model(*(torch.tensor([ids]) for ids in given))
    return t, logits[0].double(), torch.tensor(tokens["written"])


@pytest.mark.parametrize("kind", CONFIGS)
def test_the_document_holds_the_models_own_numbers(kind: str):
    document = see(subject(kind), TEXT)
    t, logits, written = rerun(kind, document)
    places = {"self": "encoder.layers.{}.self", "causal": "decoder.layers.{}.self"}
    places["cross"] = "decoder.layers.{}.cross"
    for name, stored in document["attention"].items():
        weights = array(stored)
        for layer, each in enumerate(weights):
            expected = t[places[name].format(layer) + "_attention.weights"][0]
            assert np.abs(each - expected.numpy()).max() < 1e-5
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-3)
    lens = document["lens"]
    expected = logit_lens(t).logits[:, 0].double().softmax(-1)
    best = expected.topk(5, dim=-1)
    np.testing.assert_allclose(array(lens["probabilities"]), best.values, atol=1e-5)
    own = array(lens["own"])
    np.testing.assert_allclose(own[-1], logits.softmax(-1)[range(len(written)), written], atol=1e-5)
    assert document["candidates"]["temperatures"][9] == 1.0
    ids, stored = (array(document["candidates"][key]) for key in ("ids", "logits"))
    sums = array(document["candidates"]["lse"])
    for index in (2, 9, 16):
        temperature = document["candidates"]["temperatures"][index]
        exact = probabilities(logits, Choice(temperature=temperature), None)
        shown = np.exp(stored / temperature - sums[:, index : index + 1])
        np.testing.assert_allclose(shown, exact.gather(1, torch.tensor(ids.astype(int))), atol=1e-5)
    if document["attribution"] is None:
        assert kind == "encoder"
    else:
        total = array(document["attribution"]["values"]).sum(0)
        np.testing.assert_allclose(total, logits[range(len(written)), written], atol=1e-4)
    names = document["stream"]["names"]
    lengths = array(document["stream"]["added"])
    np.testing.assert_allclose(lengths[1], t[names[1]][0].norm(dim=-1), rtol=1e-5)


@pytest.mark.parametrize("kind", ["encoder-decoder", "decoder"])
def test_the_beam_is_a_tree_whose_scores_are_the_models(kind: str):
    document = see(subject(kind), TEXT, beam=3, max_new=6)
    beam = document["beam"]
    nodes = {node["id"]: node for node in beam["nodes"]}
    assert {node["fate"] for node in nodes.values()} == {"kept", "finished", "dropped"}
    given = [t["id"] for t in document["tokens"].get("source", [])]
    if kind == "decoder":
        given = subject(kind).target.encode(TEXT)
    checked = 0
    for node in nodes.values():
        path = []
        while node["parent"] is not None:
            path.append(node)
            node = nodes[node["parent"]]
        path.reverse()
        if not path:
            continue
        tokens = [each["token"] for each in path]
        (log_probs,) = score(subject(kind).model, [given], [tokens], start_id=1)
        assert path[-1]["log_prob"] == pytest.approx(log_probs[-1], abs=1e-4)
        assert path[-1]["total"] == pytest.approx(sum(log_probs), abs=1e-4)
        if path[-1]["fate"] == "finished":
            assert path[-1]["score"] == pytest.approx(sum(log_probs) / len(tokens), abs=1e-4)
        checked += 1
    assert checked == len(nodes) - 1
    best = [
        node["token"] for node in beam["nodes"] if node.get("best") and node["parent"] is not None
    ]
    written = [t["id"] for t in document["tokens"]["written"]]
    assert best == written[-len(best) :]


@pytest.mark.parametrize("kind", CONFIGS)
def test_the_walk_names_shapes_and_the_lines_that_make_them(kind: str):
    document = see(subject(kind), TEXT)
    t, _, _ = rerun(kind, document)
    root = Path(page_module.__file__).parent.parent
    names = [step["name"] for step in document["walk"]]
    assert names == [name for name in t.names if name in names]
    assert names[-1] == "logits" and len(names) == len(set(names))
    for step in document["walk"]:
        assert step["shape"] == list(t[step["name"]].shape)
        assert len(step["symbols"]) == len(step["shape"])
        lines = (root / step["file"]).read_text(encoding="utf-8").splitlines()
        assert f"def {step['function'].rsplit('.', 1)[-1]}(" in lines[step["line"] - 1]


def test_a_part_that_was_typed_and_is_in_no_file_has_no_lines_to_show():
    typed: dict[str, Any] = {}
    code = "def forward(self, x):\n    return x\n"
    exec(compile(code, "<typed>", "exec"), typed)  # Python 3.13 keeps the lines of `python -c`
    found = walk_source(typed["forward"])
    assert (found["function"], found["source"], found["line"]) == ("forward", "", 0)


def test_a_page_fetches_nothing_and_keeps_strange_text_as_it_is():
    text = "We </script><img src=x onerror=alert(1)> \u202e live 🙂 in the suburbs."
    document = see(subject("encoder-decoder"), text, target="</script>我们�住")
    html = page(document)
    assert not re.search(r"https?://(?!www\.w3\.org)", html.replace("https://d3js.org", ""))
    assert html.count("</script>") == 3
    stored = re.search(r'id="look">(.*?)</script>', html, flags=re.S)
    assert stored is not None
    back = json.loads(stored.group(1))
    del back["notice"]
    assert back == json.loads(json.dumps(document))
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy is not None and "default-src 'none'" in policy.group(1)
    for script in re.findall(r'<script(?: type="module")?>(.*?)</script>', html, flags=re.S):
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert digest in policy.group(1)


def test_a_page_of_twenty_and_twenty_tokens_is_small():
    text = "The bride seems to be very pretty in the suburbs of 新娘 and the river."
    document = see(subject("encoder-decoder"), text, target=text)
    assert len(document["tokens"]["written"]) > 20
    assert len(page(document).encode()) < 500_000


def test_a_large_document_is_packed():
    text = "We live in the suburbs. " * 8
    document = see(subject("encoder-decoder"), text, target=text)
    assert document["attention"]["cross"]["dtype"] == "u8"
    document["padding"] = "x" * 1_100_000
    html = page(document)
    assert 'data-packed="gzip"' in html and len(html) < 700_000


def test_the_script_is_modules_of_one_form_with_names_of_their_own():
    names: list[str] = []
    for module in MODULES:
        text = (FILES / f"{module}.js").read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|\beval\(|insertAdjacent|document\.write", text)
        for line in re.findall(r"^(?:import|export).*$", text, flags=re.M):
            form = r'import \{ [\w, ]+ \} from "\./\w+\.js";|export (async )?(function|const) .*'
            assert re.fullmatch(form, line), line
        pattern = r"^(?:export )?(?:async )?(?:function|const|let) (\w+)"
        names += re.findall(pattern, text, flags=re.M)
    assert len(names) == len(set(names))
    assert {path.stem for path in FILES.glob("*.js")} == set(MODULES)
    assert not re.search(r"^(import|export) ", joined_script(), flags=re.M)


def test_both_languages_have_the_same_words_and_all_are_used():
    text = (FILES / "words.js").read_text(encoding="utf-8")
    english, chinese = text.split("  zh: {")
    pattern = r'[\s{]"?([\w-]+)"?: "'
    keys = re.findall(pattern, english)
    assert keys == re.findall(pattern, chinese)
    scripts = [*(FILES / f"{m}.js" for m in MODULES[1:]), *WEB.glob("*.js")]
    code = "".join(path.read_text(encoding="utf-8") for path in scripts)
    computed = {"self_attention", "cross_attention", "feed_forward", *CONFIGS, "self", "cross"}
    assert [k for k in keys if k not in computed and not re.search(rf'"{k}"', code)] == []
    assert not re.search(r"[\u4e00-\u9fff]", english.replace("中文", ""))


def test_vendored_files_are_what_was_published():
    table = tomllib.loads((FILES / "vendor" / "vendor.toml").read_text(encoding="utf-8"))
    assert {each["file"] for each in table["file"]} == {p.name for p in FILES.glob("vendor/*.js")}
    for each in table["file"]:
        data = (FILES / "vendor" / each["file"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == each["sha256"]
        licence = (FILES / "vendor" / each["licence"]).read_text(encoding="utf-8")
        assert " ".join(licence.split()) in page(see(subject("decoder"), TEXT)).replace('\\"', '"')


def test_parts_of_a_character_are_shown_as_bytes():
    tokenizer = subject("encoder").source
    ids = tokenizer.encode("螭")  # in no text that the tokenizer has seen
    assert len(ids) > 1
    labels = [label_of(token, tokenizer) for token in ids]
    assert " ".join(label.strip("⟨⟩") for label in labels) == "螭".encode().hex(" ")
    assert label_of(tokenizer.vocab_size, tokenizer) == f"⟨{tokenizer.vocab_size}⟩"


def test_a_blank_that_a_decoder_would_leave_out_is_shown():
    library = LibraryTokenizer(WordLevel({"<pad>": 0, "<bos>": 1, "<eos>": 2, "▁the": 3, "the": 4}))
    library.decoder = Metaspace()
    tokenizer = Tokenizer(library, ("<pad>", "<bos>", "<eos>"))
    assert [label_of(token, tokenizer) for token in (3, 4)] == ["␣the", "the"]


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_a_norm_of_ones_own_leaves_the_page_without_attribution(placement: str):
    class Halves(nn.Module):
        def __init__(self, config: ch.ModelConfig):
            super().__init__()

        def forward(self, x):
            return x / 2

    known = subject("decoder")
    config = replace(known.model.config, norm_placement=placement)
    model = ch.build_model(config, norm=Halves)
    document = see(known._replace(model=model), "We live")
    assert document["attribution"] is None and document["attention"]


def test_masks_in_an_encoders_text_are_its_mask():
    document = see(subject("encoder"), "The <mask> seems pretty.")
    ids = [t["id"] for t in document["tokens"]["source"]]
    assert ids.count(subject("encoder").source.mask_id) == 1 and ids[-1] == 2


@pytest.mark.parametrize(
    ("kind", "text", "settings", "complaint"),
    [
        ("decoder", "  ", {}, "is empty"),
        ("decoder", "We", {"beam": 2, "temperature": 1.0}, "choose one"),
        ("decoder", "We live " * 100, {}, "shorten it"),
        ("encoder", "We", {"target": "x"}, "leave target out"),
    ],
)
def test_what_cannot_be_shown_is_refused(kind: str, text: str, settings: dict, complaint: str):
    with pytest.raises(InputError, match=complaint):
        see(subject(kind), text, **settings)


def test_one_token_is_enough_to_look_at():
    document = see(subject("encoder-decoder"), "W", target="")
    assert [t["id"] for t in document["tokens"]["written"]] == [2]
    assert page(document)


def test_the_command_writes_a_page_and_a_summary(tmp_path: Path, capsys):
    from clearhead.interop.model_folder import save_model

    one = subject("decoder")
    (tmp_path / "tokenizer.json").write_text(one.target.to_json(), encoding="utf-8")
    save_model(one.model, tmp_path / "model", tokenizer=tmp_path)
    folder, html = str(tmp_path / "model"), tmp_path / "page.html"
    assert main(["see", folder, "We live", "--max-new", "5"]) == 0
    assert "causal attention, layer" in capsys.readouterr().out
    arguments = ["--html", str(html), "--temperature", "0.9", "--seed", "3", "--language", "zh"]
    assert main(["see", folder, "We live", *arguments]) == 0
    assert 'lang="zh"' in html.read_text(encoding="utf-8")


def test_a_start_token_with_the_id_of_padding_is_looked_at():
    """As Marian's is: the page agrees with decoding and with the score."""
    like = subject("encoder-decoder")
    marian = like._replace(codec=replace(like.codec, ids=TokenIds(decoder_start=0)))
    document = see(marian, TEXT, beam=1)
    assert array(document["attention"]["causal"])[..., 0].min() > 0
    best = array(document["candidates"]["ids"])[:, 0].astype(int).tolist()
    assert best == [token["id"] for token in document["tokens"]["written"]]
    ids = [token["id"] for token in document["tokens"]["source"]]
    given = see(marian, TEXT, target="pretty")
    written = [token["id"] for token in given["tokens"]["written"]]
    (scored,) = score(like.model, [ids], [written], start_id=0)
    assert given["log_prob"] == pytest.approx(sum(scored), abs=1e-4)


def test_a_decoder_is_shown_the_continuation_as_it_was_given():
    document = see(subject("decoder"), "The bride", target="\n seems")
    assert document["text"] == "\n seems"
    with pytest.raises(InputError, match=r"the target has .* tokens, but the model takes 224"):
        see(subject("decoder"), "The bride", target="pretty " * 224)


def test_a_text_is_drawn_as_generate_draws_it_and_settings_are_named():
    model = ch.load("shakespeare-char")
    how = {"temperature": 0.8, "seed": 3, "max_new": 9}
    assert ch.see(model, "ROMEO:", **how).document["text"] == model.generate("ROMEO:", **how)
    with pytest.raises(ConfigError, match="seed='a' must be a whole number"):
        ch.see(model, "ROMEO:", temperature=0.8, seed="a")
    with pytest.raises(ConfigError, match="beam=10000 must be at most 4,096; try beam=4096"):
        ch.see(model, "ROMEO:", beam=10000)


def test_the_mask_of_a_folder_is_known_and_a_classifier_reads_its_label_behind_the_text(
    tmp_path: Path,
):
    like = subject("encoder")
    (tmp_path / "tokenizer").mkdir()
    text = like.source.to_json()
    (tmp_path / "tokenizer" / "tokenizer.json").write_text(text, encoding="utf-8")
    ids = TokenIds(bos=1, eos=2)
    save_model(like.model, tmp_path / "model", tokenizer=tmp_path / "tokenizer", ids=ids)
    loaded = ch.load(tmp_path / "model")
    shown = ch.see(loaded, "The <mask> seems").document["tokens"]["source"]
    assert [token["text"] for token in shown].count("<mask>") == 1
    assert "␣" not in [token["text"] for token in shown], "the hidden token has the blank"
    assert loaded.attention("The <mask> seems").source == [token["text"] for token in shown]
    labelled = see(like._replace(label_mask=like.source.mask_id), "The bride")
    assert [token["text"] for token in labelled["tokens"]["source"]][-2:] == ["<mask>", "<eos>"]


def test_a_map_of_attention_shows_parts_of_a_character_as_the_page_does():
    model = ch.load("tatoeba-en-zh")
    found = model.attention("漢字", "hi")
    assert found.source[0].startswith("⟨") and "\ufffd" not in "".join(found.source)
    with pytest.raises(InputError, match="the text is empty; give some text to look at"):
        model.attention("")


@pytest.mark.parametrize(
    ("kind", "name", "formula"),
    [
        ("Llama's", "embedding.output", "tokens"),
        ("Llama's", "logits", "x · W_out"),
        ("BERT's", "embedding.output", "norm(tokens + positions + segments)"),
        ("ALiBi", "decoder.layers.0.self_attention.scores", "Q·Kᵀ / √d_head - slope · distance"),
        ("ALiBi", "decoder.output", "norm(x after the last layer)"),
        ("the paper's", "decoder.output", "x after the last layer"),
        ("without residual", "decoder.layers.0.around_self_attention.after", "added"),
    ],
)
def test_the_walk_gives_the_formula_of_this_model(kind: str, name: str, formula: str):
    model = model_of(kind)
    with torch.no_grad(), trace(model) as t:
        model(*inputs_of(model))
    assert next(step["formula"] for step in walk(t) if step["name"] == name) == formula


def test_a_text_may_fill_the_model_to_its_last_position():
    decoder = subject("decoder")
    n = 225 - len(decoder.source.encode("We"))  # the last token is predicted, and not fed
    document = see(decoder, "We", target="~" * n)
    assert len(document["tokens"]["fed"]) == 224
    with pytest.raises(InputError, match="has 225 tokens, but the model takes 224"):
        see(decoder, "We", target="~" * (n + 1))

"""Measures the numbers behind the pictures, from models that ship with the package, from formulas,
and from two short trainings. Everything is seeded, and numbers are rounded, so that another machine
gives the same."""

import gzip
import json
import math
import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import Tensor, nn

import clearhead as ch
from clearhead.decoding import BeamConfig, DecodeConfig, beam_search
from clearhead.doctor.specimen import TutorialTransformer
from clearhead.environment import data_folder
from clearhead.inspection.beam_tree import BeamTree
from clearhead.parts.attention import attention_weights
from clearhead.parts.positions import sinusoid
from clearhead.text.tokenizer import tokenizer_from_json
from clearhead.text.train import train_bpe
from tools.course.studies import PLACEMENTS, depths, kinds
from tools.result import FOLDER as RESULTS

Measured = dict[str, Any]
LINE = "To be, or not to be"


def rounded(x: Tensor | float, digits: int = 3) -> Any:
    """Return plain numbers; a tensor becomes nested lists."""
    if isinstance(x, Tensor):
        return [rounded(row, digits) for row in x] if x.dim() else round(x.item(), digits)
    return round(x, digits)


# ── chapter 0 ───────────────────────────────────────────────────────────────────────────────────


def leak() -> Measured:
    """Find which logits change when one token is changed, in the specimen and in a model of the
    package."""
    torch.manual_seed(0)
    specimen = TutorialTransformer().eval()
    model = ch.build_model(replace(ch.preset("tiny-encoder-decoder"), p_dropout=0.0)).eval()
    source = torch.randint(3, 64, (1, 9))
    return {
        "specimen": _sees(lambda tokens: specimen(tokens)[0], 100),
        "clearhead": _sees(lambda tokens: model(source, tokens), 64),
    }


def _sees(logits: Callable[[Tensor], Tensor], vocab: int, length: int = 8) -> list[list[int]]:
    tokens = torch.randint(3, vocab, (1, length))
    seen = torch.zeros(length, length, dtype=torch.int)
    with torch.no_grad():
        before = logits(tokens)[0]
        for j in range(length):
            other = tokens.clone()
            other[0, j] = 3 + (other[0, j] - 2) % (vocab - 3)
            change = (logits(other)[0] - before).abs().amax(-1)
            seen[:, j] = (change > 1e-5 * before.abs().max()).int()
    return seen.tolist()


def one_sequence() -> Measured:
    """Train the specimen's arrangement on random symbols that cannot be predicted. This takes
    seconds."""
    torch.manual_seed(0)
    model = TutorialTransformer(vocab_size=17, n_layers=1, p_dropout=0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(400):
        symbols = torch.randint(1, 17, (64, 9))
        loss = model(symbols[:, :-1], symbols[:, 1:])[1]
        assert loss is not None
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    symbols = torch.randint(1, 17, (500, 9))
    with torch.no_grad():
        logits = model(symbols[:, :-1])[0]
        by_place = F.cross_entropy(logits.mT, symbols[:, 1:], reduction="none").mean(0)
        # Generation: the token that is asked for has not been generated yet.
        right = torch.stack(
            [model(symbols[:, :n])[0][:, -1].argmax(-1) == symbols[:, n] for n in range(1, 9)]
        )
    return {
        "loss": rounded(by_place.mean()),
        "by_place": rounded(by_place, 2),
        "right": rounded(right.float().mean()),
    }


def learnt_by_heart() -> Measured:
    """Train an honest decoder that sees the same 32 random sequences again and again, and measure
    its loss on them and on fresh ones. This takes seconds."""
    torch.manual_seed(0)
    config = replace(ch.preset("tiny-decoder"), vocab_size=17, p_dropout=0.0)
    model = ch.build_model(config)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    known, fresh = torch.randint(1, 17, (32, 9)), torch.randint(1, 17, (500, 9))

    def loss(symbols: Tensor) -> Tensor:
        return F.cross_entropy(model(symbols[:, :-1]).mT, symbols[:, 1:])

    for _ in range(400):
        optimizer.zero_grad()
        loss(known).backward()
        optimizer.step()
    with torch.no_grad():
        return {"known": rounded(loss(known), 2), "fresh": rounded(loss(fresh), 1)}


# ── chapter 0b ──────────────────────────────────────────────────────────────────────────────────


def vocabulary() -> Measured:
    """Count the tokens in a sentence of Tatoeba's test set, by the size of a vocabulary that was
    learnt from the English and Chinese sentences of its training set together."""

    def sentences(name: str) -> list[list[str]]:
        packed = (data_folder() / "tatoeba_cmn_eng" / f"{name}.tsv.gz").read_bytes()
        rows = [line.split("\t") for line in gzip.decompress(packed).decode().splitlines()]
        return [[row[column] for row in rows] for column in (0, 1)]

    train, test = sentences("train"), sentences("test")
    sizes = [259, 300, 400, 600, 1000, 2000, 4000, 8000, 16000]
    found: Measured = {"size": sizes, "english": [], "chinese": []}
    largest = train_bpe([text for both in zip(*train) for text in both], sizes[-1]).to_json()
    for size in sizes:
        # Merges are learnt one after the other, so a smaller vocabulary is the beginning of a
        # larger one.
        document = json.loads(largest)
        learnt = document["model"]
        learnt["vocab"] = {token: i for token, i in learnt["vocab"].items() if i < size}
        learnt["merges"] = learnt["merges"][: size - sizes[0]]
        tokenizer = tokenizer_from_json(json.dumps(document))
        for name, texts in zip(("english", "chinese"), test):
            n_tokens = sum(map(len, tokenizer.encode_batch(texts)))
            found[name].append(rounded(n_tokens / len(texts), 2))
    return found


# ── chapter 1 ───────────────────────────────────────────────────────────────────────────────────

KEYS = torch.tensor([[1.0, 1, 0, 0], [1, 0.6, 0, 0], [-1, -1, 0, 0]])  # apple, banana, chair


def turn() -> Measured:
    """Compute the three weights as the query turns."""
    angles = torch.arange(0, 361, 5)
    radians = angles.double() * math.pi / 180
    queries = torch.zeros(len(angles), 4, dtype=torch.float64)
    queries[:, 0], queries[:, 1] = 8**0.5 * radians.cos(), 8**0.5 * radians.sin()
    weights = attention_weights(queries[None, None], KEYS.double()[None, None])[0, 0]
    return {"angle": angles.tolist(), "weights": rounded(weights.T)}


def entropy() -> Measured:
    """Compute the entropy of a softmax over 8 keys of random vectors, by width."""
    torch.manual_seed(0)
    widths = [4, 16, 64, 256, 1024]
    found: dict[str, list[float]] = {"raw": [], "scaled": []}
    for d in widths:
        scores = torch.randn(2000, 1, d) @ torch.randn(2000, d, 8)
        for name, scale in (("raw", 1.0), ("scaled", math.sqrt(d))):
            entropies = torch.special.entr((scores / scale).softmax(-1)).sum(-1)
            found[name].append(rounded(entropies.mean(), 2))
    return {"d": widths, **found}


def distance() -> Measured:
    """Compute the gradient of the last output at the first input, divided by that at the last
    input."""
    lengths = [16, 32, 64, 128, 256, 512]
    return {
        "length": lengths,
        "lstm": [_log(_ratio("lstm", n)) for n in lengths if n <= 128],
        "attention": [_log(_ratio("attention", n)) for n in lengths],
    }


def _log(x: float) -> float:
    return round(math.log10(x), 1)


def _ratio(kind: str, length: int) -> float:
    torch.manual_seed(0)
    x = torch.randn(8, length, 64, dtype=torch.float64, requires_grad=True)
    if kind == "lstm":
        out = nn.LSTM(64, 64, batch_first=True).double()(x)[0]
    else:
        out = nn.MultiheadAttention(64, 4, batch_first=True).double()(x, x, x)[0]
    (gradient,) = torch.autograd.grad(out[:, -1].sum(), x)
    # The last position also asks: compare with another one that is only looked at.
    last = -1 if kind == "lstm" else -2
    return (gradient[:, 0].norm() / gradient[:, last].norm()).item()


# ── chapters 2 and 3 ────────────────────────────────────────────────────────────────────────────


def heads() -> Measured:
    """Compute all heads of the shipped character model on one line."""
    model = ch.load("shakespeare-char")
    (ids,) = model.opened.codec.encode_prompts([LINE])
    recorder = ch.Recorder()
    with torch.no_grad():
        model.model(torch.tensor([ids]), recorder=recorder)
    weights = [recorder["causal", layer][0] for layer in range(model.config.n_layers)]
    return {
        "tokens": [model.tokenizer.decode([i]) or "⟨bos⟩" for i in ids],
        "weights": [rounded(layer, 2) for layer in weights],
    }


def worth() -> Measured:
    """Measure on held-out text how much the loss rises when one head of the shipped model is
    silenced. CLEARHEAD_DATA must hold tiny_shakespeare; the model was not trained on its last
    tenth."""
    model = ch.load("shakespeare-char")
    model.model.float()
    packed = (data_folder() / "tiny_shakespeare" / "input.txt.gz").read_bytes()
    text = gzip.decompress(packed).decode()
    ids = model.opened.codec.encode_prompts([text[-40_000:]])[0][: 64 * 512]
    rows = torch.tensor(ids).view(-1, 64)

    def loss() -> Tensor:
        with torch.no_grad():
            logits = model.model(rows[:, :-1])
        return F.cross_entropy(logits.mT, rows[:, 1:], reduction="none").mean(1)

    whole, rises, errors = loss(), [], []
    names = [f"decoder.layers.{i}.self_attention.heads" for i in range(model.config.n_layers)]
    heads = range(model.config.n_heads)
    single = [[ch.edit.zero(name, heads=[head])] for name in names for head in heads]
    for edits in [*single, [ch.edit.zero(name, heads=heads) for name in names[1:]]]:
        with ch.trace(model.model, read=(), edit=edits):
            rise = loss() - whole
        rises.append(rounded(rise.mean(), 3))
        errors.append(rounded(1.96 * rise.std() / len(rise) ** 0.5, 3))
    return {
        "loss": rounded(whole.mean()),
        "rise": rises[:-1],
        "interval": errors[:-1],
        "texts": len(rows),
        "later_together": {"rise": rises[-1], "interval": errors[-1]},
    }


# ── chapter 4 ───────────────────────────────────────────────────────────────────────────────────


def table() -> Measured:
    """Compute sinusoids, and their products by distance."""
    small, wide = sinusoid(48, 32, pairs="interleaved"), sinusoid(101, 128)
    return {"table": rounded(small, 2), "products": rounded((wide @ wide[0]) / 64, 3)}


# ── chapter 5 ───────────────────────────────────────────────────────────────────────────────────


def depth() -> Measured:
    """Measure twelve layers with initial weights: how similar positions become, and how much of the
    gradient reaches the first layer (first over last, of the value matrices)."""
    width = {"d_model": 64, "n_heads": 4, "d_ff": 256, "n_layers": 12}
    rest = {"positions": "sinusoidal", "init_std": 0.1, "p_dropout": 0.0}
    base = replace(ch.preset("tiny-encoder"), **width, **rest)
    found: Measured = {"cosine": {}, "gradient": {}}
    for name, option in PLACEMENTS.items():
        torch.manual_seed(0)
        model: Any = ch.build_model(replace(base, **option))
        layers, states = model.encoder.layers, []
        for layer in layers:
            layer.register_forward_hook(lambda _, __, x, seen=states: seen.append(x))
        model(torch.randint(3, 64, (4, 32)))
        (states[-1] * torch.randn(4, 32, 64)).sum().backward()
        directions = [F.normalize(x.detach(), dim=-1) for x in states]
        off = ~torch.eye(32, dtype=torch.bool)
        found["cosine"][name] = [rounded((x @ x.mT)[:, off].mean(), 2) for x in directions]
        norms = [layers[i].self_attention.value.weight.grad.norm() for i in (0, 11)]
        found["gradient"][name] = rounded(norms[0] / norms[1], 2)
    return found


# ── chapter 6 ───────────────────────────────────────────────────────────────────────────────────


def shares() -> Measured:
    """Count where the parameters of three models are."""
    configs = {
        "paper-base": ch.preset("paper-base"),
        "gpt2": ch.preset("gpt2"),
        "shakespeare-char": ch.load("shakespeare-char").config,
    }
    found: Measured = {}
    for name, config in configs.items():
        model: Any = ch.build_model(config, device="meta")
        encoder = list(model.encoder.layers) if hasattr(model, "encoder") else []
        decoder = list(model.decoder.layers)

        def size(parts: list[Any]) -> int:
            return sum(p.numel() for part in parts if part is not None for p in part.parameters())

        counted = {
            "feed_forward": size([each.feed_forward for each in encoder + decoder]),
            "self_attention": size([each.self_attention for each in encoder + decoder]),
            "cross_attention": size([each.cross_attention for each in decoder]),
            "table": size([model.tokens]),
        }
        total = ch.count_parameters(model).total
        found[name] = {**counted, "rest": total - sum(counted.values()), "total": total}
    return found


def norms() -> Measured:
    """Measure the length of the shipped translator's token vectors where they meet the positions:
    with usual initial weights, without and with √d_model; with its own initial weights; and after
    training (tokens that a sentence uses)."""
    model = ch.load("tatoeba-en-zh")
    network: Any = model.model
    d, table = model.config.d_model, network.tokens.weight.detach().float()
    (ids,) = model.opened.codec.encode_prompts([SENTENCE])

    def first(init_std: float) -> Tensor:
        torch.manual_seed(0)
        untrained: Any = ch.build_model(replace(model.config, init_std=init_std))
        return untrained.tokens.weight.detach()[ids].norm(dim=1).mean()

    return {
        "d_model": d,
        "position": rounded(sinusoid(32, d).norm(dim=1).mean(), 1),
        "plain": rounded(first(0.02), 2),
        "scaled": rounded(d**0.5 * first(0.02), 1),
        "own": rounded(d**0.5 * first(model.config.init_std), 1),
        "trained": rounded(d**0.5 * table[ids].norm(dim=1).mean(), 1),
    }


# ── chapters 4 and 7: two trainings ─────────────────────────────────────────────────────────────


COPIED = "clearhead2026"


def copy() -> Measured:
    """Train copy-task and record its cross-attention on the way. This takes a minute."""
    return _trained({})


def positions() -> Measured:
    """Train the same without positions. This takes a minute."""
    return _trained({"positions": "none"})


def _trained(changes: dict[str, Any]) -> Measured:
    """Return the cross-attention to one line at every 300 steps (0: initial weights), and the
    validation loss there. CLEARHEAD_DATA must hold copy_task (`clearhead data get copy-task`)."""
    recipe = ch.recipe("copy-task", model=changes, train={"keep": 5})
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        run = ch.train(recipe, folder=folder, prepared=Path(place) / "prepared")
        losses = {line["step"]: line["loss"] for line in run.metrics if line.get("valid")}
        torch.manual_seed(0)
        weights = [_looks(run, ch.build_model(run.config).state_dict())]
        for step in (300, 600, 900, 1200):
            state = {"model": {f"model.{k}": v for k, v in run.model.state_dict().items()}}
            dcp.load(state, checkpoint_id=folder / "checkpoints" / f"step-{step:08}", no_dist=True)
            weights.append(
                _looks(run, {k.removeprefix("model."): v for k, v in state["model"].items()})
            )
        copied = run.translate(COPIED)
    return {
        "steps": [0, 300, 600, 900, 1200],
        "weights": weights,
        "loss": {str(step): round(value, 3) for step, value in losses.items()},
        "copied": copied,
    }


def _looks(run: ch.TrainedRun, state: dict[str, Tensor]) -> Any:
    run.model.load_state_dict(state)
    return rounded(run.attention(COPIED, COPIED).weights, 2)


# ── chapter 8 ───────────────────────────────────────────────────────────────────────────────────


def training() -> Measured:
    """Run the loop of chapter 8: the loss on the training texts and on others, for few and for more
    texts. This takes seconds."""
    written = ch.load("shakespeare-char").generate(["\n"] * 192, max_new=63, seed=0)
    texts = torch.tensor([list(text.encode("ascii", "replace")[:63]) for text in written])
    config = replace(ch.preset("tiny-decoder"), vocab_size=128, p_dropout=0.0)
    steps = [1, *range(10, 201, 10)]
    found: Measured = {"steps": steps}
    for n in (16, 160):
        model = ch.build_model(config, seed=1).double()

        def loss(tokens: Tensor, model: nn.Module = model) -> Tensor:
            return F.cross_entropy(model(tokens[:, :-1]).mT, tokens[:, 1:])

        optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
        random, losses = torch.Generator().manual_seed(1), []
        for step in range(1, steps[-1] + 1):
            optimizer.zero_grad()
            loss(texts[torch.randint(n, (8,), generator=random)]).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if step in steps:
                with torch.no_grad():
                    losses.append([rounded(loss(part), 2) for part in (texts[:n], texts[160:])])
        found[str(n)] = losses
    return found


# ── chapter 9 ───────────────────────────────────────────────────────────────────────────────────

SENTENCE = "His father passed away last year."


def translation() -> Measured:
    """Compute the cross-attention of every head of the shipped translator to one sentence."""
    model = ch.load("tatoeba-en-zh")
    translated = model.translate(SENTENCE)
    maps = [
        [
            model.attention(SENTENCE, translated, layer=layer, head=head)
            for head in range(model.config.n_heads)
        ]
        for layer in range(model.config.decoder_layers)
    ]
    return {
        "source": list(maps[0][0].source),
        "written": list(maps[0][0].written),
        "weights": [[rounded(each.weights, 2) for each in row] for row in maps],
    }


# ── chapter 10 ──────────────────────────────────────────────────────────────────────────────────

PROMPT = "ROMEO:\nI w"


def candidates() -> Measured:
    """Compute the likeliest next characters of the shipped model, at three temperatures."""
    model = ch.load("shakespeare-char")
    (ids,) = model.opened.codec.encode_prompts([PROMPT])
    with torch.no_grad():
        logits = model.model(torch.tensor([ids]))[0, -1].double()
    best = logits.argsort(descending=True)[:10]
    kept: dict[str, int] = {}
    bars: dict[str, list[float]] = {}
    for temperature in (0.5, 1.0, 2.0):
        chances = (logits / temperature).softmax(-1).sort(descending=True).values
        bars[str(temperature)] = rounded((logits / temperature).softmax(-1)[best])
        kept[str(temperature)] = int((chances.cumsum(0) - chances < 0.9).sum())
    tokens = [model.tokenizer.decode([int(i)]) for i in best]
    return {"prompt": PROMPT, "tokens": tokens, "bars": bars, "kept": kept}


def beams() -> Measured:
    """Compute a beam search of width 3 over five steps, as a tree."""
    model = ch.load("shakespeare-char")
    (ids,) = model.opened.codec.encode_prompts(["ROMEO:\nW"])
    beam = BeamConfig(width=3, n_best=3)
    tree = BeamTree(beam)
    config = DecodeConfig(max_new=5, eos_id=2)
    network: Any = model.model
    outputs = beam_search(network, [ids], config, beam, watch=tree)[0]
    tree.mark(outputs[0])
    nodes = [
        {
            "id": node["id"],
            "parent": node["parent"],
            "token": None if node["token"] is None else model.tokenizer.decode([node["token"]]),
            "total": rounded(node["total"], 2),
            "fate": node["fate"],
            "best": bool(node.get("best")),
        }
        for node in tree.nodes
    ]
    return {"prompt": "ROMEO:\nW", "nodes": nodes}


# ── chapter 11 ──────────────────────────────────────────────────────────────────────────────────


def cost_in_time() -> Measured:
    """Take the widest layer from what `python -m benchmarks.attention_cost` measured."""
    found = json.loads((RESULTS / "attention_cost.json").read_text(encoding="utf-8"))
    return {"lengths": found["lengths"], **found["widths"][-1]}


def joined() -> Measured:
    """Measure the shipped translator's loss on 600 test pairs per target token, alone and joined to
    longer texts, with the interval of 95 % of resampled texts. CLEARHEAD_DATA must hold
    tatoeba_cmn_eng."""
    model = ch.load("tatoeba-en-zh")

    def encoded(name: str) -> list[list[list[int]]]:
        packed = (data_folder() / "tatoeba_cmn_eng" / f"{name}.tsv.gz").read_bytes()
        lines = [line.split("\t") for line in gzip.decompress(packed).decode().splitlines()]
        return [model.tokenizer.encode_batch([row[i] for row in lines]) for i in (0, 1)]

    sources, targets = (side[:600] for side in encoded("test"))
    generator = torch.Generator().manual_seed(0)
    found: Measured = {"together": [1, 2, 3, 4, 6, 8], "loss": [], "low": [], "high": []}
    found["longest_learnt"] = max(map(len, encoded("train")[1]))
    found["target"] = rounded(sum(map(len, targets)) / len(targets), 1)
    for n in found["together"]:
        sums, counts = [], []
        for i in range(0, len(targets), n):
            source = torch.tensor([[*chain(*sources[i : i + n]), 2]])
            target = torch.tensor([[1, *chain(*targets[i : i + n])]])
            with torch.no_grad():
                logits = model.model.float()(source, target)[0, :-1]
            sums.append(F.cross_entropy(logits, target[0, 1:], reduction="sum"))
            counts.append(target.shape[1] - 1)
        loss, count = torch.stack(sums), torch.tensor(counts)
        drawn = torch.randint(len(sums), (1000, len(sums)), generator=generator)
        resampled = (loss[drawn].sum(1) / count[drawn].sum(1)).sort().values
        found["loss"].append(rounded(loss.sum() / count.sum(), 2))
        found["low"].append(rounded(resampled[25], 2))
        found["high"].append(rounded(resampled[974], 2))
    return found


# ── chapter 13 ──────────────────────────────────────────────────────────────────────────────────

OTHERS = ["I like apples.", "She lives in London.", "We are students.", "Tom can swim."]
"""Sentences without a time, for the mean of a head."""


def inside() -> Measured:
    """Compute what the page shows: 去年 by sublayer, and what each cross-attention head contributes
    to it."""
    model = ch.load("tatoeba-en-zh")
    network: Any = model.model
    encode = model.tokenizer.encode
    target = torch.tensor([[1, *encode("他父亲")]])
    (last_year,), (last_week,) = encode("去年"), encode("上周")

    def read(sentence: str) -> Tensor:
        return torch.tensor([[*encode(sentence), 2]])

    def run(source: Tensor, *edits: Any) -> tuple[Any, Tensor]:
        with torch.no_grad(), ch.trace(network, edit=edits) as t:
            network(source, target)
        return t, t["logits"][0, -1].log_softmax(0)

    year = read(SENTENCE)
    whole, log_probs = run(year)
    week, of_week = run(read(SENTENCE.replace("year", "week")))
    this, _ = run(read(SENTENCE.replace("last", "this")))
    pairs = [(read(s), torch.tensor([[1, *encode(model.translate(s))]])) for s in OTHERS]
    low, high = (p[last_week] - p[last_year] for p in (log_probs, of_week))
    tables: dict[str, list[list[float]]] = {kind: [] for kind in ("zero", "mean", "this", "week")}
    for layer in range(model.config.decoder_layers):
        name = f"decoder.layers.{layer}.cross_attention.heads"
        mean = ch.mean_of(network, name, [lambda pair=pair: network(*pair) for pair in pairs])
        put = {"mean": mean, "this": this[name], "week": week[name]}
        for kind, rows in tables.items():
            rows.append([])
            for head in range(model.config.n_heads):
                edit = ch.edit.put(name, put[kind], heads=[head]) if kind in put else None
                _, found = run(year, edit or ch.edit.zero(name, heads=[head]))
                moved = (found[last_week] - found[last_year] - low) / (high - low)
                lost = log_probs[last_year] - found[last_year]
                rows[-1].append(rounded(moved if kind == "week" else lost, 2) + 0.0)  # no −0
    lens = ch.logit_lens(whole)
    return {
        "stages": lens.stages,
        "chances": rounded(lens.logits[:, 0, -1].softmax(-1)[:, last_year]),
        "best": [model.tokenizer.decode([int(i)]) for i in lens.logits[:, 0, -1].argmax(-1)],
        **tables,
    }


QUICK: dict[str, Callable[[], Measured]] = {
    "leak": leak,
    "turn": turn,
    "entropy": entropy,
    "distance": distance,
    "heads": heads,
    "table": table,
    "depth": depth,
    "shares": shares,
    "norms": norms,
    "translation": translation,
    "candidates": candidates,
    "beams": beams,
    "cost_in_time": cost_in_time,
    "inside": inside,
}
SLOW: dict[str, Callable[[], Measured]] = {
    "one_sequence": one_sequence,
    "learnt_by_heart": learnt_by_heart,
    "vocabulary": vocabulary,
    "worth": worth,
    "joined": joined,
    "copy": copy,
    "training": training,
    "positions": positions,
    "depths": depths,
    "kinds": kinds,
}

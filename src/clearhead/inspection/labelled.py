"""Explains on a small page why a classifier gave a text its label: how likely each label is, on
which tokens the decision depends, and where the first token, whose vector decides, has looked."""

from html import escape
from typing import Any

import torch

from clearhead.decoding.cached import evaluating, in_full
from clearhead.decoding.codec import Codec
from clearhead.inspection.pictures import heatmap_svg, heatmap_text
from clearhead.inspection.sites import names
from clearhead.inspection.trace import trace
from clearhead.models import Classifier, count_parameters
from clearhead.shapes import Tensor
from clearhead.text.visible import label_of

FORMAT = "clearhead label 1"
STYLE = """\
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-spacing: 0.8rem 0.2rem } td.n { text-align: right }
meter { width: 16rem } .pictures { overflow-x: auto } .never { font-weight: bold }"""
WORDS = {
    "en": {
        "title": "Which label, and why",
        "labels": "How likely each label is",
        "without": "What the decision depends on",
        "without note": "Each token is left out in turn: how far the log-odds of “{label}” fall. "
        "Blue speaks for the label, orange against it. A token that another one repeats may "
        "hardly count, since the other stays.",
        "attention": "Where the first token looked",
        "attention note": "A row for each layer, the mean of its heads. The label is decided from "
        "the first token’s vector alone. Attention shows where it looked, not what it used.",
        "without row": "for {label}",
        "layer": "layer {n}",
        "learnt": "What it learnt this from",
        "learnt note": "Lines of the training text that contain each piece; below, the training "
        "texts that share the rarest n-grams of tokens with this one, and their labels. This page "
        "holds training text.",
    },
    "zh": {
        "title": "判为哪个标签，依据是什么",
        "labels": "各标签的概率",
        "without": "判断依赖哪些词元",
        "without note": "逐个去掉词元，看“{label}”的对数几率下降多少。蓝色支持该标签，橙色反对。"
        "重复出现的词元去掉一个后还有另一个，所以数值可能很小。",
        "attention": "首个词元在看哪里",
        "attention note": "每层一行，取各注意力头的平均。标签只由首个词元的向量决定。"
        "注意力说明它看了哪里，不等于它用了什么。",
        "without row": "支持 {label}",
        "layer": "第 {n} 层",
        "learnt": "从哪里学来",
        "learnt note": "包含各片段的训练文本行数；其下是与本文共有最罕见词元 n-gram 的训练文本"
        "及其标签。本页含有训练文本。",
    },
}


def classifier_ids(codec: Codec, text: str) -> list[int]:
    """Return the tokens that a classifier with a head reads: the text between a start and an end
    token."""
    tokens = codec.source.encode(codec.as_in_training(text))
    return [codec.source.bos_id, *tokens, codec.source.eos_id]


def see_label(
    model: Classifier, codec: Codec, ids: list[int], *, name: str, language: str = "en"
) -> dict[str, Any]:
    """Compute all numbers of the page, for the likeliest label."""
    weights = [
        name_of_weights
        for name_of_weights in names(model)
        if name_of_weights.endswith(".self_attention.weights")
    ]
    with torch.inference_mode(), evaluating(model.modules()):
        with trace(model, weights) as t:
            scores = in_full(model(_row(model, ids), real="all"))[0]
        looked = [
            t[name_of_weights][0, :, 0].double().mean(0).tolist() for name_of_weights in weights
        ]
        without = _log_odds_lost(model, ids, scores)
    probabilities = dict(zip(model.config.labels, scores.softmax(-1).tolist()))
    return {
        "format": FORMAT,
        "language": language,
        "model": {"name": name, "parameters": count_parameters(model).total},
        "tokens": [label_of(token, codec.source) for token in ids],
        "label": max(probabilities, key=lambda label: probabilities[label]),
        "probabilities": probabilities,
        "without": without,
        "attention": looked,
    }


def _log_odds_lost(model: Classifier, ids: list[int], scores: Tensor) -> list[float]:
    """Compute how much the log-odds of the likeliest label fall without each token. Start and end
    tokens, which every text has, stay."""
    if len(scores) < 2:
        return [0.0] * len(ids)  # there is nothing to decide
    best = int(scores.argmax())
    lost = [0.0] * len(ids)
    for position in range(1, len(ids) - 1):
        others = in_full(model(_row(model, ids[:position] + ids[position + 1 :]), real="all"))[0]
        lost[position] = (_log_odds(scores, best) - _log_odds(others, best)).item()
    return lost


def _log_odds(scores: Tensor, label: int) -> Tensor:
    others = torch.cat([scores[:label], scores[label + 1 :]]).double()
    return scores[label].double() - others.logsumexp(0)


def _row(model: Classifier, ids: list[int]) -> Tensor:
    return torch.tensor([ids], device=model.tokens.weight.device)


def label_page(document: dict[str, Any]) -> str:
    """Make one HTML file that needs nothing else and runs no script."""
    words = WORDS[document["language"]]
    label, tokens = document["label"], document["tokens"]
    title = escape(f"{document['model']['name']} · clearhead see")
    likeliest = sorted(document["probabilities"].items(), key=lambda item: -item[1])
    rows = "\n".join(
        f'<tr><td>{escape(name)}</td><td class="n">{100 * chance:.2f}%</td>'
        f'<td><meter value="{chance:.4f}"></meter></td></tr>'
        for name, chance in likeliest
    )
    row = words["without row"].format(label=label)
    pictures = [
        ("without", heatmap_svg(torch.tensor([document["without"]]), [row], tokens)),
    ]
    if document["attention"]:
        layers = [words["layer"].format(n=n) for n in range(len(document["attention"]))]
        looked = torch.tensor(document["attention"])
        pictures.append(("attention", heatmap_svg(looked, layers, tokens)))
    sections = "\n".join(
        f"<h2>{words[name]}</h2>\n<p>{escape(words[f'{name} note'].format(label=label))}</p>\n"
        f'<div class="pictures">{picture}</div>'
        for name, picture in pictures
    )
    return (
        f'<!doctype html>\n<html lang="{document["language"]}">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{words['title']}: {escape(label)}</h1>\n<h2>{words['labels']}</h2>\n"
        f"<table>\n{rows}\n</table>\n{sections}\n{_learnt(document, words)}</body>\n</html>\n"
    )


def _learnt(document: dict[str, Any], words: dict[str, str]) -> str:
    """Make the section on the training text, if it was asked for."""
    if "learnt" not in document:
        return ""
    pairs = "\n".join(
        f"<li>{escape(line['texts'][0])} <b>{escape(line['texts'][-1])}</b></li>"
        for line in document["learnt"]["nearest"]
    )
    counts = "\n".join(
        f'<tr class="{"seen" if n else "never"}"><td>{escape(piece)}</td>'
        f'<td class="n">{n:,}</td></tr>'
        for piece, n in document["learnt"]["counts"]
    )
    return (
        f"<h2>{words['learnt']}</h2>\n<p>{words['learnt note']}</p>\n<table>\n{counts}\n</table>\n"
        f"<ol>\n{pairs}\n</ol>\n"
    )


def label_text(document: dict[str, Any]) -> str:
    """Return the same for a terminal: probabilities, and the tokens on which the decision
    depends."""
    likeliest = sorted(document["probabilities"].items(), key=lambda item: -item[1])
    lines = [f"{100 * chance:6.2f}%  {label}" for label, chance in likeliest]
    strongest = sorted(zip(document["without"], document["tokens"]), key=lambda item: -abs(item[0]))
    lines += ["", f"log-odds of {document['label']} lost without the token:"]
    lines += [f"{value:+8.3f}  {token}" for value, token in strongest[:10]]
    if document["attention"]:
        layers = [f"layer {n}" for n in range(len(document["attention"]))]
        picture = heatmap_text(torch.tensor(document["attention"]), layers, document["tokens"])
        lines += ["", "where the first token looked, mean of the heads:", picture]
    return "\n".join(lines)

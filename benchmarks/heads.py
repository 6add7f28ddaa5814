"""Which heads of trained models do something that has a name: heads that look at the previous
token, induction heads, alignment heads.

    python -m benchmarks.heads induction                  # trains its own decoder, minutes
    python -m benchmarks.heads decoder MODEL_FOLDER
    python -m benchmarks.heads translator MODEL_FOLDER    # needs the tatoeba_cmn_eng corpus

Each writes a file in benchmarks/results. An induction head looks, in a text that repeats itself, at
the token behind the earlier occurrence of the query's own (Olsson et al. 2022). The repeated part
is drawn at random: nothing but the repetition helps. An alignment head looks at the source token
that an IBM Model 1 lexicon, trained on the same corpus, gives the written token. In all cases the
baseline is the same head with its keys shuffled.
"""

import argparse
import gzip
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from clearhead.config import ModelConfig
from clearhead.environment import data_folder
from clearhead.inspection.heads import head_kinds, induction_shares
from clearhead.inspection.sites import names
from clearhead.inspection.sweep import head_ablation
from clearhead.inspection.trace import mean_of, trace
from clearhead.interop.model_folder import load_model
from clearhead.models import CausalLM, Seq2Seq, build_model
from clearhead.shapes import Tensor
from clearhead.text.tokenizer import Tokenizer, load_tokenizer
from tools.result import write_result

N_TEXTS, PERIOD = 64, 24
STEPS, N_SYMBOLS = 5000, 60
N_PAIRS, ROUNDS = 200, 5


def trained_on_repetitions() -> CausalLM:
    """A decoder of two layers whose texts are a random part and its repetition, the part's length
    drawn anew for every batch."""
    config = ModelConfig(
        family="decoder",
        vocab_size=N_SYMBOLS,
        pad_id=None,
        d_model=64,
        n_layers=2,
        n_heads=4,
        d_ff=128,
        max_length=2 * PERIOD,
        positions="rotary",
        embedding_scale=False,
        p_dropout=0.0,
        init_std=0.1,
    )
    model = build_model(config, seed=1)
    assert isinstance(model, CausalLM)
    generator = torch.Generator().manual_seed(2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        period = int(torch.randint(6, PERIOD + 1, (), generator=generator))
        drawn = torch.randint(N_SYMBOLS, (64, period), generator=generator)
        tokens = torch.cat((drawn, drawn), dim=1)
        losses = _token_losses(model, tokens)[:, period:]
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1.0, (step + 1) / 100, (STEPS - step) / (STEPS / 2))
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
    return model.eval()


def without_each_head(model: CausalLM, drawn: Tensor) -> dict[str, Any]:
    """The loss on the repetition with each head replaced by its mean."""
    tokens = torch.cat((drawn, drawn), dim=1)

    def loss() -> Tensor:
        return _token_losses(model, tokens)[:, PERIOD:].mean()

    places = names(model, "*attention.heads")
    means = {name: mean_of(model, name, [lambda: model(tokens)]) for name in places}
    grid = head_ablation(model, loss, float, means=means)
    rows = [[round(x, 4) for x in row] for row in grid.values.tolist()]
    return {"loss": round(grid.unedited, 4), "without_head": dict(zip(grid.rows, rows))}


def decoder_heads(model: CausalLM, letters: Tensor) -> dict[str, Any]:
    """Induction and previous-token shares of every head."""
    generator = torch.Generator().manual_seed(1)
    drawn = letters[torch.randint(len(letters), (N_TEXTS, PERIOD), generator=generator)]
    with torch.no_grad(), trace(model, read="*.weights") as t:
        model(torch.cat((drawn, drawn), dim=1))
    previous = head_kinds(t)
    rows: list[dict[str, Any]] = []
    for name in t.names:
        found = induction_shares(t[name], PERIOD)
        shuffled = induction_shares(t[name][..., _permutation(2 * PERIOD, generator)], PERIOD)
        for head in range(len(found)):
            rows.append(
                {
                    "attention": name.removesuffix(".weights"),
                    "head": head,
                    "induction": round(found[head].item(), 4),
                    "shuffled": round(shuffled[head].item(), 4),
                    "previous": round(previous[name].previous[head].item(), 4),
                }
            )
    return {
        "texts": N_TEXTS,
        "period": PERIOD,
        "heads": sorted(rows, key=lambda row: -row["induction"]),
        **without_each_head(model, drawn),
    }


def _token_losses(model: CausalLM, tokens: Tensor) -> Tensor:
    """Of every token but the first."""
    log_probs = model(tokens[:, :-1]).log_softmax(dim=-1)
    return -log_probs.gather(-1, tokens[:, 1:, None])[..., 0]


def alignment_heads(model: Seq2Seq, tokenizer: Tokenizer) -> dict[str, Any]:
    """How often each cross-attention head looks most at the lexicon's source token."""
    train, test = (_pairs(name, tokenizer) for name in ("train", "test"))
    lexicon = ibm_model_1(train)
    generator = torch.Generator().manual_seed(1)
    agreed: Counter[tuple[str, int]] = Counter()
    by_chance: Counter[tuple[str, int]] = Counter()
    n_tokens = 0
    for source, target in test[:N_PAIRS]:
        expected = torch.tensor(
            [
                max(range(len(source)), key=lambda i: lexicon.get((source[i], w), 0.0))
                for w in target
            ]
        )
        with torch.no_grad(), trace(model, read="*.cross_attention.weights") as t:
            model(torch.tensor([[*source, 2]]), torch.tensor([[1, *target[:-1]]]))
        n_tokens += len(target)
        for name in t.names:
            weights = t[name][0, :, :, : len(source)]  # the end of the source means nothing
            shuffled = weights[..., _permutation(len(source), generator)]
            for counter, each in ((agreed, weights), (by_chance, shuffled)):
                for head, hits in enumerate((each.argmax(dim=-1) == expected).sum(dim=-1).tolist()):
                    counter[name, head] += hits
    rows = [
        {
            "attention": name.removesuffix(".weights"),
            "head": head,
            "agrees": round(agreed[name, head] / n_tokens, 4),
            "shuffled": round(by_chance[name, head] / n_tokens, 4),
        }
        for name, head in agreed
    ]
    return {
        "pairs": N_PAIRS,
        "tokens": n_tokens,
        "heads": sorted(rows, key=lambda row: -row["agrees"]),
    }


def ibm_model_1(pairs: list[tuple[list[int], list[int]]]) -> dict[tuple[int, int], float]:
    """t(target | source), by expectation maximisation (Brown et al. 1993)."""
    chances: dict[tuple[int, int], float] = {}
    for _ in range(ROUNDS):
        counts: Counter[tuple[int, int]] = Counter()
        totals: Counter[int] = Counter()
        for source, target in pairs:
            for word in target:
                shares = [chances.get((one, word), 1.0 if not chances else 0.0) for one in source]
                total = sum(shares) or 1.0
                for one, share in zip(source, shares):
                    counts[one, word] += share / total  # type: ignore[assignment]
                    totals[one] += share / total  # type: ignore[assignment]
        chances = {key: count / totals[key[0]] for key, count in counts.items()}
    return chances


def _pairs(split: str, tokenizer: Tokenizer) -> list[tuple[list[int], list[int]]]:
    path = data_folder() / "tatoeba_cmn_eng" / f"{split}.tsv.gz"
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    texts = [line.split("\t")[:2] for line in lines]
    sides = [tokenizer.encode_batch([text[side] for text in texts]) for side in (0, 1)]
    return list(zip(*sides))


def _permutation(n: int, generator: torch.Generator) -> Tensor:
    return torch.randperm(n, generator=generator)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("kind", choices=["induction", "decoder", "translator"])
    parser.add_argument("folder", type=Path, nargs="?")
    arguments = parser.parse_args()
    if arguments.kind == "induction":
        found = decoder_heads(trained_on_repetitions(), torch.arange(N_SYMBOLS))
    else:
        model = load_model(arguments.folder).float().eval()
        tokenizer = load_tokenizer(arguments.folder / "tokenizer.json")
        if isinstance(model, CausalLM):
            letters = {i for c in "abcdefghijklmnopqrstuvwxyz" for i in tokenizer.encode(c)}
            found = decoder_heads(model, torch.tensor(sorted(letters)))
        else:
            assert isinstance(model, Seq2Seq)
            found = alignment_heads(model, tokenizer)
    for row in found["heads"][:6]:
        print(row)
    write_result(f"heads_{arguments.kind}", found)


if __name__ == "__main__":
    main()

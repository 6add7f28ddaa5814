"""Our traced activations beside TransformerLens's, name by name, on exported models.

    python -m benchmarks.transformer_lens

A GPT-2 and a Llama with random weights are exported to Hugging Face's form, opened there by
TransformerLens's TransformerBridge, and given the same tokens. Needs `transformer-lens`, which has
an environment of its own: `.ci/transformer_lens` makes it and runs this. Exits with 1 if a shared
name differs by more than the limit, relative to its largest number, or if fewer names than expected
could be compared.
"""

import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.inspection.trace import Trace, trace
from clearhead.interop.huggingface.exporting import export_model
from clearhead.interop.model_folder import TokenIds, save_model
from clearhead.models import CausalLM, build_model
from tools.result import write_result

LIMIT = 1e-5
SIZES = {"vocab_size": 61, "d_model": 48, "n_layers": 3, "n_heads": 4, "d_ff": 72, "max_length": 32}
CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": {"positions": "learned", "feed_forward": "gelu-tanh", "tie_output": True},
    "llama": {
        "positions": "rotary",
        "norm": "rms",
        "bias": False,
        "feed_forward": "swiglu",
        "n_kv_heads": 2,
        "tie_output": False,
    },
}
FEWEST = 30  # names of each model that must have been compared

Turn = Callable[[Tensor], Tensor]


def same(x: Tensor) -> Tensor:
    return x


def heads_behind(x: Tensor) -> Tensor:
    """(batch, heads, length, width) → theirs, (batch, length, heads, width)."""
    return x.transpose(1, 2)


def table(kind: str, n_layers: int) -> list[tuple[str, str, Turn]]:
    """Our name, theirs, and how ours is turned; as in docs/en/see.md, in a pre-norm model."""
    rows: list[tuple[str, str, Turn]] = [
        ("embedding.tokens", "embed.hook_out", same),
        ("embedding.positions", "pos_embed.hook_out", same),
        ("embedding.output", "blocks.0.hook_in", same),
    ]
    for i in range(n_layers):
        ours, theirs = f"decoder.layers.{i}", f"blocks.{i}"
        rows += [
            (f"{ours}.around_self_attention.before", f"{theirs}.hook_in", same),
            (f"{ours}.around_self_attention.read", f"{theirs}.ln1.hook_out", same),
            (f"{ours}.self_attention.query", f"{theirs}.attn.q.hook_out", heads_behind),
            (f"{ours}.self_attention.key", f"{theirs}.attn.k.hook_out", heads_behind),
            (f"{ours}.self_attention.value", f"{theirs}.attn.v.hook_out", heads_behind),
            (f"{ours}.self_attention.query_rotated", f"{theirs}.attn.hook_rot_q", same),
            (f"{ours}.self_attention.key_rotated", f"{theirs}.attn.hook_rot_k", same),
            (f"{ours}.self_attention.scores", f"{theirs}.attn.hook_attn_scores", same),
            (f"{ours}.self_attention.weights", f"{theirs}.attn.hook_pattern", same),
            (f"{ours}.self_attention.heads", f"{theirs}.attn.o.hook_in", heads_behind),
            (f"{ours}.self_attention.head_outputs", f"{theirs}.attn.hook_result", heads_behind),
            (f"{ours}.self_attention.output", f"{theirs}.attn.hook_out", same),
            (f"{ours}.around_self_attention.added", f"{theirs}.attn.hook_out", same),
            (f"{ours}.around_feed_forward.before", f"{theirs}.ln2.hook_in", same),
            (f"{ours}.around_feed_forward.read", f"{theirs}.ln2.hook_out", same),
            (f"{ours}.feed_forward.gate", f"{theirs}.mlp.hook_pre", same),
            (
                f"{ours}.feed_forward.up",
                f"{theirs}.mlp.hook_pre_linear" if kind == "llama" else f"{theirs}.mlp.hook_pre",
                same,
            ),
            (f"{ours}.feed_forward.inner", f"{theirs}.mlp.hook_post", same),
            (f"{ours}.feed_forward.output", f"{theirs}.mlp.hook_out", same),
            (f"{ours}.around_feed_forward.added", f"{theirs}.mlp.hook_out", same),
            (f"{ours}.around_feed_forward.after", f"{theirs}.hook_out", same),
        ]
    return [
        *rows,
        ("decoder.output", "ln_final.hook_out", same),
        ("logits", "unembed.hook_out", same),
    ]


def compared(kind: str, tokens: Tensor) -> dict[str, Any]:
    """The largest difference at each name; the names that only one side has."""
    model = random_decoder(kind)
    with torch.no_grad(), trace(model) as t:
        model(tokens)
    cache = theirs_of(model, kind, tokens)
    found: dict[str, float] = {}
    missing: list[str] = []
    for ours, theirs, turn in table(kind, model.config.n_layers):
        if ours not in t:
            continue  # the model has no such part: no rotation, no gate, no position table
        if theirs not in cache:
            missing.append(f"{ours} ({theirs})")
            continue
        found[ours] = difference(ours, turn(t[ours]), cache[theirs], t)
    return {
        "names": len(found),
        "largest": max(found.values()),
        "over": {name: value for name, value in found.items() if not value <= LIMIT},
        "not_there": missing,
    }


def random_decoder(kind: str) -> CausalLM:
    config = ModelConfig(family="decoder", embedding_scale=False, **SIZES, **CONFIGS[kind])
    model = build_model(config, seed=1)
    assert isinstance(model, CausalLM)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.2 * noise if name.endswith("norm.weight") else 0.2 * noise)
    return model.eval()


def theirs_of(model: CausalLM, kind: str, tokens: Tensor) -> dict[str, Tensor]:
    """What TransformerLens reads when it runs the exported model."""
    from transformer_lens.model_bridge import TransformerBridge  # pyright: ignore
    from transformers import AutoModelForCausalLM

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_model(model, folder / "ours", ids=TokenIds(bos=1, eos=2))
        export_model(folder / "ours", folder / "theirs", check=False)
        opened = AutoModelForCausalLM.from_pretrained(
            folder / "theirs", attn_implementation="eager", dtype=torch.float32
        ).eval()
        bridge = TransformerBridge.boot_transformers(
            kind, hf_model=opened, tokenizer=any_tokenizer(), device="cpu"
        )
    # By default this folds norms into weights and centres them: other numbers than the model's.
    bridge.enable_compatibility_mode(no_processing=True, disable_warnings=True)
    bridge.set_use_attn_result(True)
    with torch.no_grad():
        _, cache = bridge.run_with_cache(tokens)
    return {name: value for name, value in cache.items() if isinstance(value, Tensor)}


def difference(name: str, ours: Tensor, theirs: Tensor, t: Trace) -> float:
    """The largest, relative to the largest number; infinite where the shapes differ."""
    if name.endswith(".positions"):
        ours = ours.expand(theirs.shape)  # one row for all texts here
    if theirs.dim() == 3 and ours.dim() == 4:  # heads side by side
        theirs = theirs.unflatten(-1, ours.shape[2:])
    if name.endswith(("_rotated",)) and theirs.shape != ours.shape:
        theirs = theirs.transpose(1, 2)
    if ours.shape != theirs.shape:
        return float("inf")
    if name.endswith(".scores"):  # forbidden cells hold -inf here, another value there
        allowed = t[name] > -torch.inf
        ours, theirs = ours[allowed], theirs[allowed]
    return ((ours - theirs).abs().max() / ours.abs().max()).item()


def any_tokenizer() -> Any:
    """The bridge wants one, although tokens are given as ids."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "<bos>", "<eos>"]
    words = [*special, *(f"t{i}" for i in range(3, SIZES["vocab_size"]))]
    library = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="t3"))
    # With a start token the bridge would open the tokenizer anew, from a hub.
    return PreTrainedTokenizerFast(
        tokenizer_object=library, pad_token=special[0], eos_token=special[2]
    )


def main() -> None:
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(3, SIZES["vocab_size"], (2, 17), generator=generator)
    found = {kind: compared(kind, tokens) for kind in CONFIGS}
    for kind, each in found.items():
        print(f"{kind}: {each['names']} names, largest difference {each['largest']:.1e}")
        print("  differ:", each["over"] or "none")
        print("  not there:", ", ".join(each["not_there"]) or "none")
    versions = {"transformer_lens": version("transformer-lens"), "limit": LIMIT}
    write_result("transformer_lens", {**versions, **found})
    sys.exit(any(each["over"] or each["names"] < FEWEST for each in found.values()))


if __name__ == "__main__":
    main()

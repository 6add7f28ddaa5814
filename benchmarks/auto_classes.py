"""The doctor on every causal and sequence-to-sequence class of Hugging Face's auto mappings that
can be built tiny in ten seconds.

    python -m benchmarks.auto_classes            # goes on where it stopped
    python -m benchmarks.auto_classes LlamaForCausalLM

Each finished class is a line of benchmarks/results/auto_classes.jsonl; the same command continues.
At its end, or when it is interrupted, it writes the figures to auto_classes.json.
"""

import argparse
import contextlib
import io
import json
import time
from typing import Any

import torch
import transformers

from benchmarks.forked import forked
from benchmarks.result import FOLDER, write_result
from clearhead.doctor import examine

RESULT = FOLDER / "auto_classes.jsonl"
SECONDS_TO_BUILD = 10
SECONDS = 90
# The sizes that configurations have, by their many names.
TINY: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "d_model": 32,
    "n_embd": 32,
    "embed_dim": 32,
    "word_embed_proj_dim": 32,
    "embedding_size": 32,
    "intermediate_size": 48,
    "ffn_dim": 48,
    "d_ff": 48,
    "n_inner": 48,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "num_hidden_layers": 2,
    "num_layers": 2,
    "n_layer": 2,
    "n_layers": 2,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "num_decoder_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_heads": 4,
    "n_head": 4,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "head_dim": 8,
    "d_kv": 8,
    "max_position_embeddings": 64,
    "n_positions": 64,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "n_group": 1,
    "topk_group": 1,
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
    "layerdrop": 0.0,
    "is_decoder": True,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "scale_embedding": True,
    "attn_implementation": "eager",
}


def names() -> dict[str, str]:
    """Class of the model → class of its configuration, by their names: nothing is imported."""
    from transformers.models.auto import modeling_auto as auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    found: dict[str, str] = {}
    for mapping in (
        auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    ):
        for kind, model in mapping.items():
            found.setdefault(model, CONFIG_MAPPING_NAMES[kind])
    return found


def examine_one(name: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    transformers.logging.set_verbosity_error()
    try:
        kind, build = getattr(transformers, names()[name]), getattr(transformers, name)
        started = time.monotonic()
        known = vars(kind())
        config = kind(**{k: v for k, v in TINY.items() if k in known or k.startswith("attn_")})
        model = build(config)
    except Exception as error:
        return {"name": name, "built": False, "why": f"{type(error).__name__}: {error}"[:160]}
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    if n_parameters > 5_000_000 or time.monotonic() - started > SECONDS_TO_BUILD:
        why = f"{n_parameters:,} parameters with the sizes that are known here"
        return {"name": name, "built": False, "why": why}
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            report = examine(model, quick=True)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        return {"name": name, "built": True, "recognised": False, "why": text[:300]}
    return {
        "name": name,
        "built": True,
        "recognised": True,
        "found": [
            {"case": f.case, "severity": f.severity, "place": f.place, "because": f.because}
            for f in report.findings
            if f.severity != "note"
        ],
        "notes": sorted({f.case for f in report.findings if f.severity == "note"}),
        "could not run": {o.check: o.reason for o in report.not_run},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args().names
    try:
        examine_all(asked)
    finally:
        if not asked:
            print(write_result("auto_classes", figures()))


def finished() -> list[dict[str, Any]]:
    lines = RESULT.read_text(encoding="utf-8").splitlines() if RESULT.exists() else []
    return [json.loads(line) for line in lines]


def figures() -> dict[str, Any]:
    said = finished()
    built = [one for one in said if one["built"]]
    examined = [one for one in built if one["recognised"]]
    return {
        "classes of the mappings": len(names()),
        "tried": len(said),
        "built tiny": len(built),
        "examined": len(examined),
        "without an error or a warning": sum(not one["found"] for one in examined),
        "not recognised": {one["name"]: one["why"] for one in built if not one["recognised"]},
        "found": {one["name"]: one["found"] for one in examined if one["found"]},
        "could not run": {
            one["name"]: one["could not run"] for one in examined if one["could not run"]
        },
    }


def examine_all(asked: list[str]) -> None:
    done = {said["name"] for said in finished()}
    for name in asked or [name for name in names() if name not in done]:
        try:
            said = forked(examine_one, name, seconds=SECONDS)
        except RuntimeError as error:
            said = {"name": name, "built": False, "why": str(error)}
        line = json.dumps(said)
        print(line[:400], flush=True)
        if not asked:
            with RESULT.open("a", encoding="utf-8") as file:
                file.write(line + "\n")


if __name__ == "__main__":
    main()

"""The doctor on every causal and sequence-to-sequence class of Hugging Face's auto mappings that
can be built tiny in ten seconds.

    python -m tests.doctor.auto_classes                       # resumes where it was interrupted
    python -m tests.doctor.auto_classes LlamaForCausalLM      # again, whether it was done or not

Each finished class is a line of benchmarks/results/auto_classes.jsonl, in the place of an earlier
one. At its end, or when it is interrupted, it writes the figures to auto_classes.json; whether a
finding is true is a judgement, which `auto_judgements.toml` gives with its proof.
"""

import argparse
import contextlib
import importlib
import io
import json
import random
import time
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import transformers

from clearhead.doctor import examine
from clearhead.files import write_whole
from tools.forked import forked
from tools.result import FOLDER, write_result

RESULT = FOLDER / "auto_classes.jsonl"
JUDGEMENTS = Path(__file__).parent / "auto_judgements.toml"
SECONDS_TO_BUILD = 10
MOST_PARAMETERS = 5_000_000
SECONDS = 1800  # by the clock, which goes on while other programs compute
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
    "rotary_dim": 4,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "qk_head_dim": 16,
    "v_head_dim": 8,
    "index_n_heads": 2,
    "index_head_dim": 16,
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "attn_layer_indices": [1],
    "max_position_embeddings": 64,
    "n_positions": 64,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "n_group": 1,
    "topk_group": 1,
    "dim_model_base": 32,
    "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 16},
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


def build(name: str) -> torch.nn.Module:
    """A tiny model of this class. Hybrids have a layer of attention among the first eight only."""
    kind, model = getattr(transformers, names()[name]), getattr(transformers, name)
    known = vars(kind())
    given = {k: v for k, v in TINY.items() if k in known or k.startswith("attn_")}
    if known.get("is_encoder_decoder"):  # T5's has no default
        given["decoder_start_token_id"] = TINY["decoder_start_token_id"]
    if "kv_lora_rank" in known:  # latent attention has a key for each head
        given["num_key_value_heads"] = TINY["num_attention_heads"]
    config = kind(**given)
    kinds = [str(layer) for layer in getattr(config, "layer_types", None) or ()]
    if kinds and all("linear" in layer or "mamba" in layer for layer in kinds):
        config = kind(**{**given, "num_hidden_layers": 8})
    with torch.device("meta"):  # its size costs nothing there
        n_parameters = sum(parameter.numel() for parameter in model(config).parameters())
    if n_parameters > MOST_PARAMETERS:
        raise ValueError(f"{n_parameters:,} parameters with the sizes that are known here")
    torch.manual_seed(0)
    return model(config)


def examine_one(name: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    transformers.logging.set_verbosity_error()
    started = time.process_time()
    try:
        model = build(name)
    except Exception as error:
        return {"name": name, "built": False, "why": f"{type(error).__name__}: {error}"[:160]}
    if time.process_time() - started > SECONDS_TO_BUILD:
        return {"name": name, "built": False, "why": f"not built in {SECONDS_TO_BUILD} s"}
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
    if unknown := sorted(set(asked) - set(names())):
        parser.error(f"not in the mappings: {', '.join(unknown)}")
    try:
        examine_all(asked)
    finally:
        print(write_result("auto_classes", figures()))


def finished() -> list[dict[str, Any]]:
    lines = RESULT.read_text(encoding="utf-8").splitlines() if RESULT.exists() else []
    return [json.loads(line) for line in lines]


def keep(said: dict[str, Any]) -> None:
    """A class that was examined before keeps its place in the file."""
    known = {one["name"]: one for one in finished()} | {said["name"]: said}
    write_whole(RESULT, "".join(json.dumps(one) + "\n" for one in known.values()))


def judged(name: str, finding: dict[str, Any]) -> str:
    """What follows from another finding is judged with it."""
    for judgement in tomllib.loads(JUDGEMENTS.read_text(encoding="utf-8"))["judgement"]:
        if finding["case"] == judgement["case"] and name in judgement["classes"]:
            return judgement["verdict"]
    return "not judged"


def figures() -> dict[str, Any]:
    said = finished()
    built = [one for one in said if one["built"]]
    examined = [one for one in built if one["recognised"]]
    headlines = Counter(
        f"{finding['severity']}, {judged(one['name'], finding)}"
        for one in examined
        for finding in one["found"]
        if finding["because"] is None
    )
    return {
        "classes of the mappings": len(names()),
        "tried": len(said),
        "built tiny": len(built),
        "examined": len(examined),
        "without an error or a warning": sum(not one["found"] for one in examined),
        "without an error": sum(
            all(finding["severity"] != "error" for finding in one["found"]) for one in examined
        ),
        "headlines": dict(sorted(headlines.items())),
        "not recognised": {one["name"]: one["why"] for one in built if not one["recognised"]},
        "found": {one["name"]: one["found"] for one in examined if one["found"]},
        "could not run": {
            one["name"]: one["could not run"] for one in examined if one["could not run"]
        },
    }


def examine_all(asked: list[str]) -> None:
    # What all of these classes import is imported here, once.
    importlib.import_module("transformers.models.llama.modeling_llama")
    done = {said["name"] for said in finished()}
    # In an order drawn at random (seeded): those of a run that was interrupted are a fair sample.
    order = random.Random(0).sample(sorted(names()), len(names()))
    for name in asked or [name for name in order if name not in done]:
        try:
            said = forked(examine_one, name, seconds=SECONDS)
        except RuntimeError as error:
            said = {"name": name, "built": False, "why": str(error)}
        print(json.dumps(said)[:400], flush=True)
        keep(said)


if __name__ == "__main__":
    main()

"""The test set of a trained model of pairs, from text to text and with the same beam: by the model
itself, by the engine ctranslate2 (float32, int8) and by Hugging Face from the exported folder. Are
the texts the same, what does each cost in processor time, and what do eight bits cost in BLEU?

    python -m benchmarks.serving multi30k-de-en     # after python -m benchmarks.recipes train …
    python -m benchmarks.serving multi30k-de-en --run FOLDER --name serving_short_run
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.recipe_scores_there import translated
from benchmarks.recipes import BEAM, run_folder, split_documents, tokenizer_of_bleu
from clearhead.config import BeamConfig, TranslateConfig
from clearhead.decoding.engine import CTranslate2Engine
from clearhead.decoding.opening import open_folder
from clearhead.decoding.text import Engine, OwnEngine
from clearhead.evaluation.translation import translate_lines, translation_scores
from clearhead.interop.huggingface.exporting import export_model
from clearhead.training.report import read_metrics
from tools.result import write_result

HOW = TranslateConfig(beam=BeamConfig(width=BEAM))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--run", type=Path, help="the folder of another run of the recipe")
    parser.add_argument("--name", help="of the result file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    run: Path = arguments.run or run_folder(arguments.recipe, arguments.seed)
    sources, references = map(list, zip(*split_documents(run)))
    opened = open_folder(run)
    result = arguments.name or f"serving_{arguments.recipe}"
    steps = [r["step"] for r in read_metrics(run / "metrics.jsonl") if "valid" not in r]
    measured = {"recipe": arguments.recipe, "steps": steps[-1], "beam": BEAM}
    rows: list[dict[str, Any]] = []
    first: list[str] = []
    with TemporaryDirectory() as name:
        folder = Path(name)
        export_model(run / "model", folder / "hf")

        def by(engine: Callable[[], Engine]) -> list[str]:
            return translate_lines(engine(), opened.codec, sources, HOW)

        ct2 = partial(CTranslate2Engine, run / "model", folder=folder)
        ct2()  # makes the folder, once
        window = opened.model.config.max_length
        ways = {
            "clearhead": lambda: by(lambda: OwnEngine(opened.translator)),
            "engine ctranslate2": lambda: by(ct2),
            "engine ctranslate2 int8": lambda: by(partial(ct2, precision="int8")),
            "Hugging Face": lambda: translated(folder / "hf", sources, BEAM, window),
        }
        for way, translate in ways.items():
            started = time.process_time()
            texts = translate()
            seconds = time.process_time() - started
            first = first or texts
            bleu, chrf = translation_scores(
                texts, references, tokenize=tokenizer_of_bleu(arguments.recipe), n_resamples=0
            )
            rows.append(
                {
                    "by": way,
                    bleu.name: round(bleu.value, 4),
                    chrf.name: round(chrf.value, 4),
                    "same_texts": sum(a == b for a, b in zip(first, texts)),
                    "processor_seconds": round(seconds, 1),
                }
            )
            print(rows[-1], flush=True)
            write_result(result, {**measured, "n_lines": len(sources), "rows": rows})


if __name__ == "__main__":
    main()

"""The test set of a trained recipe of pairs, translated here and by CTranslate2 from the exported
folder, by the same beam: are the scores the same, and what do eight bits cost?

    python -m benchmarks.serving multi30k-de-en     # after python -m benchmarks.recipes train …
"""

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import ctranslate2
import torch
from tokenizers import Tokenizer

from benchmarks.recipes import BEAM, run_folder, split_documents, tokenizer_of_bleu
from benchmarks.result import write_result
from clearhead.cli.folders import open_folder
from clearhead.decoding import BeamConfig
from clearhead.evaluation.translation import translate_lines, translation_scores
from clearhead.interop.ctranslate2.exporting import export_ctranslate2

MAX_NEW = 256  # as `clearhead evaluate`


def ours(folder: Path, lines: list[str]) -> list[str]:
    opened = open_folder(folder)
    return translate_lines(
        opened.translator,
        opened.source,
        opened.target,
        lines,
        config=opened.decode_config(MAX_NEW),
        beam=BeamConfig(width=BEAM),
    )


def theirs(folder: Path, lines: list[str], compute_type: str) -> list[str]:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.encode_special_tokens = True
    translator = ctranslate2.Translator(
        str(folder), compute_type=compute_type, intra_threads=torch.get_num_threads()
    )
    results = translator.translate_batch(
        [tokenizer.encode(line, add_special_tokens=False).tokens for line in lines],
        beam_size=BEAM,
        max_batch_size=2048,
        batch_type="tokens",
        max_decoding_length=MAX_NEW,
    )
    numbers = tokenizer.get_vocab()
    return [
        tokenizer.decode([numbers[token] for token in result.hypotheses[0]]) for result in results
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    run = run_folder(arguments.recipe, arguments.seed)
    sources, references = map(list, zip(*split_documents(run)))
    rows: list[dict[str, object]] = []
    with TemporaryDirectory() as name:
        out = Path(name) / "ctranslate2"
        certificate = export_ctranslate2(run / "model", out)
        ways = {
            "clearhead": lambda: ours(run, sources),
            "CTranslate2 float32": lambda: theirs(out, sources, "float32"),
            "CTranslate2 int8": lambda: theirs(out, sources, "int8"),
        }
        first: list[str] = []
        for way, translate in ways.items():
            started = time.process_time()
            texts = translate()
            seconds = time.process_time() - started
            first = first or texts
            bleu, chrf = translation_scores(
                texts, references, tokenize=tokenizer_of_bleu(arguments.recipe), n_resamples=0
            )
            same = sum(a == b for a, b in zip(first, texts)) / len(texts)
            rows.append(
                {
                    "by": way,
                    bleu.name: round(bleu.value, 4),
                    chrf.name: round(chrf.value, 4),
                    "same_texts": same,
                    "core_seconds_with_loading": round(seconds, 1),
                }
            )
            print(rows[-1], flush=True)
    lines = [line.replace(str(out), "OUT") for line in certificate.lines(out)]
    measured = {"recipe": arguments.recipe, "n_lines": len(sources), "certificate": lines}
    write_result(f"serving_{arguments.recipe}", {**measured, "rows": rows})


if __name__ == "__main__":
    main()

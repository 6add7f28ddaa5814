"""Does transformers.js translate as clearhead does, from the exported ONNX folder? The shipped
tatoeba-en-zh, in Node, without network, greedy, in batches of five with padding; and the lines of
the folder's README, as they stand.

    npm install --ignore-scripts --prefix build/transformers-js @huggingface/transformers
    python -m benchmarks.transformers_js

Needs CLEARHEAD_DATA for the test set of Tatoeba.
"""

import argparse
import json
import re
import subprocess
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from clearhead.api.loading import find_model
from clearhead.config import BeamConfig, TranslateConfig, load_recipe
from clearhead.config.tasks import StoredPrecision
from clearhead.decoding.opening import open_folder
from clearhead.decoding.text import OwnEngine
from clearhead.evaluation.translation import translate_lines
from clearhead.intake.sources import Cursor, Reader, find_inputs, located
from clearhead.interop.model_folder import model_folder_of
from clearhead.interop.onnx.exporting import export_onnx
from tools.result import write_result

MODULES = Path("build/transformers-js")
MODEL = "tatoeba-en-zh"
PRECISIONS: tuple[StoredPrecision, ...] = ("fp32", "fp16", "int8")
PROGRAM = """\
import { readFileSync, writeFileSync } from "node:fs";
import { env, pipeline } from "@huggingface/transformers";

env.allowRemoteModels = false;
const [folder, given, found] = process.argv.slice(2);
const translate = await pipeline("translation", folder);
const lines = JSON.parse(readFileSync(given, "utf-8"));
const texts = [];
for (let i = 0; i < lines.length; i += 5)
  texts.push(...(await translate(lines.slice(i, i + 5))).map((each) => each.translation_text));
writeFileSync(found, JSON.stringify(texts));
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modules", type=Path, default=MODULES, help="where npm has installed it")
    parser.add_argument("--lines", type=int, default=100)
    options = parser.parse_args()
    sources = list(islice(test_lines(), options.lines))
    folder = model_folder_of(find_model(MODEL).folder)
    opened = open_folder(folder)
    greedy = TranslateConfig(beam=BeamConfig(width=1))
    ours = translate_lines(OwnEngine(opened.translator), opened.codec, sources, greedy)
    package = options.modules / "node_modules" / "@huggingface" / "transformers" / "package.json"
    measured: dict[str, Any] = {
        "transformers_js": json.loads(package.read_text("utf-8"))["version"],
        "model": MODEL,
        "lines": len(sources),
    }
    for precision in PRECISIONS:
        # Inside, so that Node finds the modules from there.
        with TemporaryDirectory(dir=options.modules) as name:
            out = Path(name) / "exported"
            certificate = export_onnx(folder, out, precision=precision)
            theirs = translated(out, sources)
            measured[precision] = {
                "bytes": sum(path.stat().st_size for path in (out / "onnx").iterdir()),
                "certificate": certificate.verdict(),
                "same_texts": sum(one == other for one, other in zip(ours, theirs, strict=True)),
                "different": [
                    {"source": source, "clearhead": one, "transformers.js": other}
                    for source, one, other in zip(sources, ours, theirs, strict=True)
                    if one != other
                ],
                "readme_prints": run_readme(out),
            }
        print(precision, measured[precision]["same_texts"], "of", len(sources), flush=True)
    print(write_result("transformers_js", measured))


def test_lines() -> Any:
    """The English side of the test set."""
    config = load_recipe(MODEL).data
    reader = Reader(find_inputs(located(config), "test"), config, "test")
    return (document.texts[0] for document in reader.documents(Cursor(), {}))


def translated(folder: Path, lines: list[str]) -> list[str]:
    """By transformers.js, in Node."""
    program, given, found = (folder.parent / name for name in ("run.mjs", "in.json", "out.json"))
    program.write_text(PROGRAM, encoding="utf-8")
    given.write_text(json.dumps(lines), encoding="utf-8")
    subprocess.run(["node", program, folder, given, found], check=True)
    return json.loads(found.read_text("utf-8"))


def run_readme(folder: Path) -> str:
    """What the program in the folder's README prints."""
    code = re.search(r"```js\n(.*?)```", (folder / "README.md").read_text("utf-8"), flags=re.S)
    assert code is not None
    (folder / "readme.mjs").write_text(code[1], encoding="utf-8")
    command = ["node", "readme.mjs"]
    run = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return run.stdout.strip()


if __name__ == "__main__":
    main()

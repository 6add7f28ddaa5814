"""Puts a trained model into the package: half precision, with its tokenizer.

    python -m benchmarks.ship MODEL_FOLDER NAME [--authors tatoeba_cmn_eng/train.tsv.gz]

Writes src/clearhead/shipped/NAME; README.md and examples.txt there are written by hand, and stay.
`--authors` writes ATTRIBUTION.txt, the names that a Tatoeba file (below CLEARHEAD_DATA) gives.
"""

import argparse
import gzip
import re
import shutil
import tempfile
from pathlib import Path

from clearhead.environment import data_folder
from clearhead.interop.model_folder import load_model, read_description, save_model

SHIPPED = Path(__file__).parent.parent / "src" / "clearhead" / "shipped"


def ship(folder: Path, name: str) -> Path:
    model, out = load_model(folder).half(), SHIPPED / name
    out.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        made = Path(temporary) / name
        save_model(model, made, ids=read_description(folder).ids, tokenizer=folder)
        for file in made.iterdir():
            shutil.copyfile(file, out / file.name)
    return out


def authors(file: Path) -> list[str]:
    """Everybody who wrote a sentence of the file, once."""
    lines = gzip.decompress(file.read_bytes()).decode().splitlines()
    names = {name for line in lines for name in re.findall(r"#\d+ \(([^)]*)\)", line)}
    return sorted(names, key=str.lower)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("name")
    parser.add_argument("--authors", metavar="FILE.tsv.gz")
    arguments = parser.parse_args()
    out = ship(arguments.folder, arguments.name)
    if arguments.authors:
        found = authors(data_folder() / arguments.authors)
        text = (
            "Trained on sentences of Tatoeba (https://tatoeba.org), which are under CC BY 2.0 FR\n"
            "(https://creativecommons.org/licenses/by/2.0/fr/). Their authors there:\n\n"
        )
        (out / "ATTRIBUTION.txt").write_text(text + ", ".join(found) + "\n", encoding="utf-8")
    for file in sorted(out.iterdir()):
        print(f"{file.stat().st_size:>10,}  {file.name}")


if __name__ == "__main__":
    main()

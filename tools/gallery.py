"""Makes the live pages of the shipped models, for the site. In each page, the model runs in the
browser.

    npm install onnxruntime-web@1.30.0 @huggingface/tokenizers@0.2.0
    bash .ci/docs build/site
    python -m tools.gallery build/site

Writes SITE/live/MODEL, and SITE/live/sizes.json, from which a panel of the site knows how many
megabytes it would fetch. Without these files, the panels are pictures.
"""

import argparse
import json
from pathlib import Path

import clearhead as ch
from clearhead.api.locating import shipped_models


def write_gallery(site: Path, models: list[str], runtime: Path | None = None) -> None:
    """Export each model below `site`."""
    live, sizes = site / "live", {}
    live.mkdir(parents=True)
    for model in models:
        certificate = ch.export(model, live / model, to="web", runtime=runtime)
        assert not certificate.failed, certificate.verdict()
        files = [path for path in (live / model).rglob("*") if path.is_file()]
        sizes[model] = sum(path.stat().st_size for path in files)
    (live / "sizes.json").write_text(json.dumps(sizes), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("site", type=Path)
    parser.add_argument("--runtime", type=Path, help="a node_modules; default: that of this folder")
    arguments = parser.parse_args()
    write_gallery(arguments.site, shipped_models(), arguments.runtime)
    print(f"gallery: {arguments.site}/live")


if __name__ == "__main__":
    main()

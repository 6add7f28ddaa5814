"""Does a translator know when it is wrong? The shipped English–Chinese model, calibrated on text of
its own kind that its training never saw.

    python -m benchmarks.confidence

Writes results/confidence.json: the curve, its error on sentences that it was not fitted to, and the
share of the worst tenth by chrF++ that it finds, beside length and chance.
"""

import csv
import gzip

import clearhead as ch
from clearhead.intake.sources import data_root
from tools.result import write_result

MODEL = "tatoeba-en-zh"


def main() -> None:
    data = ch.recipe(MODEL).data
    (name,) = data.paths("valid")
    with gzip.open(data_root(data) / name, "rt", encoding="utf-8", newline="") as file:
        pairs = [row[:2] for row in csv.reader(file, "excel-tab", quoting=csv.QUOTE_NONE)]
    measured = ch.calibrate(
        MODEL,
        source=[source for source, _ in pairs],
        reference=[reference for _, reference in pairs],
        save=False,
    )
    print(measured)
    *points, facts = measured.records
    print(write_result("confidence", {"model": MODEL, "text": name, **facts, "points": points}))


if __name__ == "__main__":
    main()

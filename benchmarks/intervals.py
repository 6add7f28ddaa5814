"""How often an interval covers the truth: the kinds of interval that a study could use, on the
simulated runs of tests/studies/simulated.py.

    python -m benchmarks.intervals      # a minute; benchmarks/results/intervals.json
"""

from clearhead.studies.statistics import CONFIDENCE
from tests.studies.simulated import CASES, KINDS, coverage
from tools.result import write_result

SEEDS = (3, 5, 10)


def main() -> None:
    found = [
        {
            "interval": name,
            "case": case,
            "effects": "skewed" if skewed else "normal",
            "seeds": n_seeds,
            "coverage": coverage(kind, n_seeds, case, skewed=skewed),
        }
        for name, kind in KINDS.items()
        for case in CASES
        for skewed in (False, True)
        for n_seeds in SEEDS
    ]
    for row in found:
        print(*row.values(), sep="\t")
    print(write_result("intervals", {"nominal": CONFIDENCE, "rows": found}))


if __name__ == "__main__":
    main()

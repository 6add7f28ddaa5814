"""From nothing to a translation: a new environment, the wheel, one sentence.

    python -m benchmarks.first_result

Builds the wheel, installs torch and then the wheel by pip into a new environment, and translates
the same sentence twice: the first start compiles what it imports. How long the installs take
depends on where pip finds its packages. Writes benchmarks/results/first_result.json.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tools.result import write_result

ROOT = Path(__file__).parent.parent
SENTENCE = "The weather is nice today."


def timed(*command: object, given: str | None = None, **environment: str) -> tuple[str, float]:
    """What a command says, and its seconds."""
    started = time.monotonic()
    done = subprocess.run(
        [str(word) for word in command],
        check=True,
        input=given,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **environment},
    )
    return done.stdout, round(time.monotonic() - started, 1)


def main() -> None:
    constraints = ROOT / "constraints.txt"
    torch = next(
        line for line in constraints.read_text().splitlines() if line.startswith("torch==")
    )
    with TemporaryDirectory(prefix="clearhead-first-") as name:
        folder = Path(name)
        pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps")
        timed(*pip, "--constraint", constraints, "--wheel-dir", folder, ROOT)
        (wheel,) = folder.glob("clearhead-*.whl")
        timed(sys.executable, "-m", "venv", folder / "env")
        programs = folder / "env" / "bin"
        install = (programs / "pip", "install", "--quiet", "--constraint", constraints)
        _, torch_seconds = timed(*install, torch)
        _, wheel_seconds = timed(*install, wheel)
        translate = (programs / "clearhead", "translate", "tatoeba-en-zh")
        starts = [timed(*translate, given=SENTENCE, PYTHONPATH="") for _ in range(2)]
        size = wheel.stat().st_size
    measured = {
        "wheel_mb": round(size / 1e6, 1),
        "install_torch_seconds": torch_seconds,
        "install_wheel_seconds": wheel_seconds,
        "sentence": SENTENCE,
        "translation": starts[0][0].strip(),
        "first_translation_seconds": starts[0][1],
        "second_translation_seconds": starts[1][1],
    }
    print(measured)
    print(write_result("first_result", measured))


if __name__ == "__main__":
    main()

"""No process that clearhead starts runs code of the current folder: somebody may have sent it."""

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import clearhead
from clearhead.cli import main
from clearhead.course.exercises import EXERCISES
from clearhead.course.folder import LearnFolder
from clearhead.environment import variables
from clearhead.processes import output_of, starting_processes
from clearhead.studies.result_lines import RESULTS, read_lines
from tests.security.conftest import Sent
from tests.security.test_studies import PART, Received
from tests.test_architecture import FILES

SHADOWED = [*sorted(sys.stdlib_module_names), "clearhead", "numpy", "torch", "sitecustomize"]
SECONDS = 300
ROOT = Path(__file__).parents[2]
COMMAND = "import sys; from clearhead.cli import main; sys.exit(main())"
LOAD = """\
import multiprocessing, sys
from pathlib import Path
from clearhead.config import BatchConfig
from clearhead.data.corpus import open_corpus
from clearhead.data.loader import Loader

corpus = open_corpus(Path(sys.argv[1]))
for method in sys.argv[2:]:
    multiprocessing.set_start_method(method, force=True)
    loader = Loader(corpus, BatchConfig(length=20, batch_size=7), workers=1)
    next(iter(loader))
    assert loader.position.step == 1
"""
"""Not the current folder but that of the script comes first on its path, as for the command."""


def poison(folder: Path) -> Path:
    """A module in the place of every one of the standard library. Returns where it notes that it
    was run."""
    note = folder.parent / "was-run"
    for name in SHADOWED:
        code = f"open({str(note)!r}, 'a').write({name + ' '!r})\nraise ImportError('shadow')\n"
        (folder / f"{name}.py").write_text(code)
    return note


@pytest.fixture
def received(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A poisoned folder, which is the current one, and where its code would note that it was
    run."""
    folder = tmp_path / "received"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    return folder, poison(folder)


def command(folder: Path, *arguments: object, script: str = COMMAND) -> subprocess.Popen[str]:
    """A script in a folder of its own, as the command `clearhead` is one, run in another folder."""
    file = folder.parent / "bin/script.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text(script)
    return subprocess.Popen(
        [sys.executable, file, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> str:
    """What it said, if it ended well."""
    try:
        _, said = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, said
    return said


def test_the_poisoned_folder_is_poisonous(received: tuple[Path, Path]):
    folder, note = received
    subprocess.run([sys.executable, "-c", "import json"], cwd=folder, stderr=subprocess.DEVNULL)
    assert note.read_text()  # which module is first differs between versions of Python


@pytest.mark.slow
def test_prepare_with_two_processes_runs_no_code_of_the_current_folder(
    received: tuple[Path, Path], sent: Sent, tmp_path: Path
):
    folder, note = received
    big = tmp_path / "big.txt"
    big.write_text("the quick brown fox jumps over the lazy dog\n" * 25_000)  # more than SMALL
    where = ["--data.train", f'["{big}"]', "--out", tmp_path / "out"]
    ended(command(folder, "prepare", sent.recipe, *where, "--processes", 2))
    assert (tmp_path / "out/manifest.json").is_file() and not note.exists()


@pytest.mark.slow
def test_the_workers_of_a_loader_run_no_code_of_the_current_folder(
    received: tuple[Path, Path], sent: Sent
):
    """With the start methods that are the default of macOS, and of Linux from Python 3.14 on."""
    folder, note = received
    ended(command(folder, sent.prepared, "spawn", "forkserver", script=LOAD))
    assert not note.exists()


@pytest.mark.slow
def test_the_workers_of_a_server_run_no_code_of_the_current_folder(received: tuple[Path, Path]):
    pytest.importorskip("uvicorn", reason="needs the extra serve")
    pytest.importorskip("ctranslate2", reason="needs the extra serve")
    folder, note = received
    arguments = ["serve", "shakespeare-char", "--workers", 2, "--port", 0]
    process = command(folder, *arguments)
    assert process.stderr is not None
    n_ready = 0
    try:
        for line in process.stderr:
            assert "a worker has ended" not in line
            n_ready += '"message": "ready"' in line
            if n_ready == 2:
                break
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    assert n_ready == 2 and not note.exists()


@pytest.mark.slow
def test_the_workers_of_a_study_run_the_part_that_the_user_names_and_nothing_else(
    received: tuple[Path, Path], tmp_path: Path
):
    _, note = received
    (tmp_path / "sent").mkdir()
    sent = Received(tmp_path / "sent")
    sent.write()
    own = sent.file.with_name("own.py")
    own.write_text(PART)
    text = sent.file.read_text().replace("[3, 5]", "[3]").split("[arms.base]")[0]
    sent.file.write_text(text + '[arms.own]\nparts.norm = "own.py:Scale"\n')
    assert sent.ask("run", "--part", f"norm={own}:Scale") == 0
    (line,) = read_lines(sent.folder / RESULTS)
    assert line["arm"] == "own" and line["values"]
    assert not note.exists()


@pytest.mark.slow
def test_the_tour_runs_no_code_of_its_folder(
    received: tuple[Path, Path], capfd: pytest.CaptureFixture[str]
):
    folder, note = received
    (folder / ".quickstart").write_text("begun\n")
    (folder / "data").write_text("a file where a folder should be, so that the tour ends here")
    assert main(["quickstart", str(folder)]) != 0
    assert "the tour stops, because this command ended" in capfd.readouterr().err
    assert not note.exists()


@pytest.mark.slow
def test_a_check_runs_the_exercise_and_nothing_else_of_the_folder(received: tuple[Path, Path]):
    folder, note = received
    learner = LearnFolder.make(folder, "en")
    exercise = EXERCISES[0]
    (folder / exercise.file).write_text(exercise.solution_text("en"))
    assert learner.check([exercise])[exercise.name].complete
    assert not note.exists()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_no_repository_around_an_environment_is_asked_for_a_commit(tmp_path: Path):
    """Its settings can name a program that git runs."""
    packages = tmp_path / "project/.venv/lib/python3/site-packages"
    source = Path(clearhead.__file__).parent
    shutil.copytree(source, packages / "clearhead", ignore=shutil.ignore_patterns("shipped"))
    git = ["git", "-C", str(tmp_path / "project"), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "-f", "."], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *words], check=True)
    script = tmp_path / "program"
    script.write_text(f"#!/bin/sh\ntouch '{tmp_path}/was-run'\n")
    script.chmod(0o755)
    subprocess.run([*git, "config", "core.fsmonitor", str(script)], check=True)
    ask = "from clearhead.api import study_worker; print(repr(study_worker._commit()))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", ask],
        env={**os.environ, "PYTHONPATH": str(packages)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "''\n", done.stderr
    assert not (tmp_path / "was-run").exists()


def test_a_program_of_the_current_folder_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """On Windows it would come before the one of the PATH."""
    (tmp_path / "git").write_text("#!/bin/sh\necho here\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert output_of("git") == "here"
    monkeypatch.chdir(tmp_path)
    assert output_of("git") == "" == output_of("no-such-program")


def test_blocks_that_overlap_restore_what_was_there_when_the_last_one_ends(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    before = sys.modules["__main__"].__dict__.get("__spec__")
    first, second = starting_processes(), starting_processes()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert os.environ["PYTHONSAFEPATH"] == "1"
    second.__exit__(None, None, None)
    assert os.environ["PYTHONSAFEPATH"] == ""
    assert sys.modules["__main__"].__dict__.get("__spec__") is before
    with variables(PYTHONSAFEPATH="2"):
        pass
    assert os.environ["PYTHONSAFEPATH"] == ""


# No start of a process is forgotten.

ONLY_IN_PROCESSES = {
    "subprocess": [
        "Popen",
        "run",
        "call",
        "check_call",
        "check_output",
        "getoutput",
        "getstatusoutput",
    ],
    "os": ["system", "popen", "fork", "forkpty", "startfile", "posix_spawn", "posix_spawnp"]
    + [
        f"{kind}{how}"
        for kind in ("exec", "spawn")
        for how in ["l", "le", "lp", "lpe", "v", "ve", "vp", "vpe"]
    ],
    "pty": ["spawn", "fork"],
    "webbrowser": ["open", "open_new", "open_new_tab", "get"],
    "asyncio": ["create_subprocess_exec", "create_subprocess_shell"],
    "runpy": ["run_module", "run_path"],
}
"""What starts a process, or runs code, whatever is around it."""
IN_A_BLOCK = (
    "Process", "Pool", "ThreadPool", "Manager", "ProcessPoolExecutor", "DataLoader",
    "start_processes", "SharedMemoryManager", "elastic_launch",
)  # fmt: skip
"""By whatever way they are reached: what starts processes of multiprocessing's."""


def unsafe_starts(source: str) -> list[str]:
    """What a file starts without `start_module` and outside of `starting_processes`."""
    tree = ast.parse(source)
    names: dict[str, str] = {}  # what a name of the file stands for
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name.split(".")[0]
                names[bound] = alias.name if alias.asname else bound
        elif isinstance(node, ast.ImportFrom):
            names |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
    return _starts_in(tree, names, inside=False)


def _starts_in(node: ast.AST, names: dict[str, str], *, inside: bool) -> list[str]:
    found: list[str] = []
    if isinstance(node, ast.Attribute | ast.Name):
        module, _, name = _dotted(node, names).rpartition(".")
        if name in ONLY_IN_PROCESSES.get(module, ()) or (name in IN_A_BLOCK and not inside):
            found.append(f"line {node.lineno}: {module}.{name}")
    if isinstance(node, ast.With):
        for item in node.items:
            found += _starts_in(item.context_expr, names, inside=inside)
            inside = inside or ast.unparse(item.context_expr) == "starting_processes()"
        return found + [each for n in node.body for each in _starts_in(n, names, inside=inside)]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.GeneratorExp):
        inside = False  # it may be called when the block has ended
    for child in ast.iter_child_nodes(node):
        is_type = isinstance(node, ast.Subscript) and child is node.value  # Popen[bytes]
        if not is_type:
            found += _starts_in(child, names, inside=inside)
    return found


def _dotted(node: ast.AST, names: dict[str, str]) -> str:
    match node:
        case ast.Name(id=name):
            return names.get(name, name)
        case ast.Attribute(value=value, attr=attr):
            return f"{_dotted(value, names)}.{attr}"
    return "?"


def test_every_process_is_started_by_the_one_function():
    starts = {file: unsafe_starts(source) for file, source in FILES.items()}
    assert starts.pop("processes.py") != []
    assert {file: found for file, found in starts.items() if found} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import subprocess\nsubprocess.run(['python', '-m', 'x'])",
        "import subprocess as s\ns.Popen(['x'])",
        "from subprocess import check_output as ask\nask(['x'])",
        "import subprocess\nstart = subprocess.run",
        "import os\nos.system('x')",
        "from os import execv\nexecv('x', [])",
        "import multiprocessing\nmultiprocessing.get_context('spawn').Process(target=f).start()",
        "from multiprocessing import Pool\nPool(2)",
        "from concurrent.futures import ProcessPoolExecutor\nProcessPoolExecutor(2)",
        "from torch.utils.data import DataLoader\nDataLoader(x)",
        "import torch\ntorch.utils.data.DataLoader(x)",
        "from x import starting_processes\nwith Pool(2), starting_processes(): pass",
        "with starting_processes():\n    def later(): return Pool(2)",
        "import subprocess\nwith starting_processes():\n    subprocess.run(['x'])",
    ],
)
def test_a_start_that_was_forgotten_is_found(source: str):
    assert unsafe_starts(source) != []


def test_a_start_in_the_block_and_a_type_are_not_accused():
    source = (
        "import platform, subprocess\nfrom concurrent.futures import ProcessPoolExecutor\n"
        "x: list[subprocess.Popen[bytes]] = []\nplatform.system()\nrun(x)\n"
        "with starting_processes(), ProcessPoolExecutor(2) as pool:\n    DataLoader(x)\n"
    )
    assert unsafe_starts(source) == []


def unsafe_commands(text: str) -> list[str]:
    """Lines that start Python with `-m clearhead` and with the current folder on its path. A line
    may name such a command in order to say what it does."""
    found: list[str] = []
    for line in text.splitlines():
        command = re.search(r"(python3?|torchrun)\b[^`]*? -m clearhead\b", line)
        safe = " -P " in line or "PYTHONSAFEPATH=1" in line
        if command and not safe and "`python -m clearhead`" not in line:
            found.append(line)
    return found


def test_no_page_and_no_message_shows_a_command_that_trusts_the_current_folder():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.toml")]
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    texts |= {Path(file): source for file, source in FILES.items()}
    del texts[ROOT / "CHANGELOG.md"]  # it says what commands were
    found = {str(page): unsafe_commands(text) for page, text in texts.items()}
    assert {page: lines for page, lines in found.items() if lines} == {}


def test_a_command_that_trusts_the_current_folder_is_found():
    assert unsafe_commands("$ python -m clearhead train x") != []
    assert unsafe_commands("$ torchrun --nproc-per-node 2 -m clearhead train x") != []
    assert unsafe_commands("$ PYTHONSAFEPATH=1 torchrun -m clearhead train x") == []

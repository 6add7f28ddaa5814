"""docs/en/security.md names every kind of file that clearhead reads. Whoever adds a reader says
there who may have made the file."""

import ast
import re
from pathlib import Path

import pytest

from tests.test_architecture import FILES

ROOT = Path(__file__).parents[2]
OPENERS = {
    "ParquetFile", "decompress", "from_pretrained", "fromfile", "GzipFile", "iterparse", "memmap",
    "open", "read_bytes", "read_json", "read_text", "safe_open", "spec_from_file_location",
    "urlopen",
}  # fmt: skip
"""What opens or reads a file, by whatever way it is reached."""
LOADS = {"torch.load", "dcp.load", "np.load", "numpy.load", "pickle.load", "pickle.loads"}
WRITING = re.compile("[wax]b?")

PACKAGE = "a file of the package"
OWN = "a file that the same command has made"
SYSTEM = "a file of the system"
ANY = "whatever its callers name, which are listed themselves"

READERS = {
    "api/examining.py:open_module": "model folder: config.json",
    "api/loading.py:load": "model folder",
    "api/locating.py:locate": "model folder: config.json",
    "api/tokenized_model.py:as_tokenized_model": "model folder",
    "api/serving.py:_keys": "keys of a server's clients",
    "api/study_worker.py:ProcessorClock.__init__": "study folder: processor.json",
    "api/studying.py:Study._costs": "study folder: costs.json",
    "api/studying.py:_read_result": "study folder: result.json",
    "cli/__init__.py:main": SYSTEM,
    "cli/learn.py:run": "learn folder",
    "cli/lines.py:_check_files": "lines for",
    "cli/lines.py:_count_lines": "lines for",
    "cli/lines.py:_packed_lines": "lines for",
    "cli/lines.py:read_lines": "lines for",
    "cli/play.py:_example": "model folder: examples.txt",
    "cli/quickstart.py:_enter": "folder of the tour: .quickstart",
    "cli/terminal.py:discard": SYSTEM,
    "config/recipe.py:read_toml": "recipe and study",
    "course/child.py:_check": "exercises in a learn folder",
    "course/exercises/__init__.py:Exercise.original": PACKAGE,
    "course/exercises/__init__.py:Exercise.solution_text": PACKAGE,
    "course/exercises/__init__.py:_texts": PACKAGE,
    "course/folder.py:_run": OWN,
    "course/loading.py:load_file": "exercises in a learn folder",
    "course/state.py:LearnState.read": "learn folder: learn.json",
    "course/state.py:hash_of": "exercises in a learn folder",
    "course/phrasebook.py:phrases": PACKAGE,
    "data/adopt.py:_facts": "prepared folder",
    "data/datatrove_step.py:TokenFiles.__init__": "tokenizer.json",
    "intake/fetch.py:_take": "downloads",
    "data/manifest.py:_json": "prepared folder: manifest.json",
    "intake/parquet.py:open_parquet": "text",
    "intake/proposal.py:format_of": "text",
    "intake/public.py:_unpacked_sha256": "downloads",
    "intake/public.py:get_corpus": "downloads",
    "intake/public.py:public_corpora": PACKAGE,
    "intake/tables.py:read_units": "text",
    "data/token_files.py:_map": "prepared folder",
    "intake/unpack.py:_Zstd._unpack": "text",
    "intake/unpack.py:open_bytes": "text",
    "decoding/engine.py:engine_folder": "folders of CTranslate2",
    "decoding/engine.py:model_hash": "model folder",
    "doctor/diff/settings_in_source.py:_tree": "FILE.py:FUNCTION",
    "doctor/diff/texts/__init__.py:sentences": PACKAGE,
    "doctor/hub_folders.py:_read_object": "Hugging Face folder",
    "doctor/hub_folders.py:_tensors": "Hugging Face folder",
    "doctor/hub_folders.py:open_hub_folder": "Hugging Face folder",
    "doctor/texts/__init__.py:_read": PACKAGE,
    "doctor/user_files.py:run_file": "FILE.py:FUNCTION",
    "environment.py:processor_name": SYSTEM,
    "files.py:NewFile.__init__": OWN,
    "files.py:_hold": OWN,
    "files.py:sha256_of": ANY,
    "files.py:open_plain": ANY,
    "files.py:sync": OWN,
    "inspection/page.py:_read": PACKAGE,
    "interop/calibration.py:read_calibration": "model folder: calibration.json",
    "interop/folders.py:read_bytes": ANY,
    "interop/folders.py:read_json": ANY,
    "interop/folders.py:read_text": ANY,
    "interop/huggingface/certificate.py:_tokenizer_faults": OWN,
    "interop/huggingface/certificate.py:certify": OWN,
    "interop/huggingface/importing.py:import_model": "Hugging Face folder",
    "interop/huggingface/own_ids.py:with_own_ids": "Hugging Face folder",
    "interop/huggingface/tokenizer.py:_rewrite": OWN,
    "interop/huggingface/tokenizer.py:write_tokenizer": OWN,
    "interop/labels.py:copy_labels": "model folder: labels.json",
    "interop/labels.py:read_labels": "model folder: labels.json",
    "interop/model_folder.py:read_description": "model folder: config.json",
    "interop/tensor_files.py:TensorFiles._open": "model folder: model.safetensors",
    "interop/tensor_files.py:_shard_index": "model folder",
    "interop/tensor_files.py:_to_convert": "model folder: config.json",
    "interop/tokenizer_file.py:copy_tokenizer": "tokenizer.json",
    "interop/tokenizer_file.py:open_tokenizer": "tokenizer.json",
    "interop/onnx/certificate.py:_tokenizer_faults": OWN,
    "localise/catalogues.py:Catalogue.__init__": "catalogues",
    "localise/glossary.py:read_glossary": "glossaries",
    "scale/accelerators.py:accelerators": PACKAGE,
    "scale/published.py:_tables": PACKAGE,
    "serving/stored.py:StoredFiles.get": OWN,
    "studies/result_lines.py:_content": "study folder: results.jsonl",
    "studies/study_file.py:Arm.fingerprint": "FILE.py:FUNCTION",
    "studies/wording.py:words": PACKAGE,
    "studies/workers.py:_failure": "study folder: logs/",
    "text/tokenizer.py:load_tokenizer": "tokenizer.json",
    "training/checkpoint.py:Checkpoints.load": "run folder: checkpoints/",
    "training/checkpoint.py:_read_manifest": "run folder: checkpoints/",
    "training/checkpoint_index.py:read_index": "run folder: checkpoints/",
    "training/report.py:RunFiles.forget_after": "run folder: metrics.jsonl",
    "training/report.py:read_metrics": "run folder: metrics.jsonl",
    "web/card.py:_last_validation": "run folder: metrics.jsonl",
    "web/card.py:_text": "model folder: README.md",
    "web/exporting.py:_contents": OWN,
    "web/exporting.py:_copy_tokenizers": "tokenizer.json",
    "web/exporting.py:_first_example": "model folder: examples.txt",
    "web/exporting.py:export_web": "model folder: README.md",
    "web/runtime.py:_own": PACKAGE,
    "web/runtime.py:_read": "runtime of a web page",
}
"""Each function that reads a file: how its rows of the page begin, and a name that a row has."""
NO_FILES = ("requests to", "other processes", "notes")
"""Rows of what arrives by a network, and of notes, which are read by `_json` too."""


def readers(file: str, source: str) -> set[str]:
    """The functions of a file that open or read a file."""
    found: set[str] = set()

    def look(node: ast.AST, inside: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = inside
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{inside}.{child.name}" if inside else child.name
            if isinstance(child, ast.Call) and _reads(child):
                found.add(f"{file}:{name}")
            look(child, name)

    look(ast.parse(source), "")
    return found


def _reads(call: ast.Call) -> bool:
    called = ast.unparse(call.func)
    modes = [each.value for each in call.args if isinstance(each, ast.Constant)]
    writes = any(isinstance(mode, str) and WRITING.fullmatch(mode) for mode in modes)
    return called in LOADS or (called.rsplit(".", 1)[-1] in OPENERS and not writes)


def rows(language: str) -> list[str]:
    """The first cells of the table of folders and files."""
    page = (ROOT / f"docs/{language}/security.md").read_text(encoding="utf-8")
    table = page.split("\n## ")[1]
    return [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()[4:] if line]


def test_every_reader_is_known_and_every_known_one_is_there():
    found = {each for file, source in FILES.items() for each in readers(file, source)}
    assert found - READERS.keys() == set(), "say in security.md who may have made what they read"
    assert READERS.keys() - found == set(), "they read nothing any more"


def test_the_page_has_a_row_for_what_every_reader_reads_and_names_it():
    plain = [row.replace("`", "") for row in rows("en")]
    used: set[str] = set()
    kinds = [(reader, kind) for reader, both in READERS.items() for kind in both.split(" and ")]
    for reader, kind in kinds:
        if kind in (PACKAGE, OWN, SYSTEM, ANY):
            continue
        begins, _, name = kind.partition(": ")
        matching = [row for row in plain if re.match(rf"{re.escape(begins)}\b", row)]
        matching = [row for row in matching if row.split(":")[0] == begins] or matching
        assert len(matching) == 1, f"{reader}: {matching}"
        assert name in matching[0], f"{reader}: the row of {begins!r} does not name {name!r}"
        used.add(matching[0])
    assert [row for row in plain if row not in used and not row.startswith(NO_FILES)] == []


def test_both_languages_name_the_same_files():
    def names(language: str) -> list[set[str]]:
        code = [re.findall(r"`([^`]+)`", row) for row in rows(language)]
        return [
            {word for word in words if re.fullmatch(r"[\w.]+\.\w+|\w+/", word)} for words in code
        ]

    assert len(rows("en")) == len(rows("zh")) > 15
    assert names("en") == names("zh")


@pytest.mark.parametrize(
    "source",
    [
        "def f(p): return p.read_text()",
        "class A:\n    def f(self, p):\n        with p.open('rb') as file: ...",
        "def f(p): return open(p).read()",
        "import numpy as np\ndef f(p): return np.load(p)",
        "def f(p): return torch.load(p)",
        "def f(p): return p.open(encoding='utf-8')",
    ],
)
def test_a_new_reader_is_found(source: str):
    assert len(readers("new.py", source)) == 1


def test_what_only_writes_is_no_reader():
    source = "def f(p):\n    p.open('w', encoding='utf-8')\n    p.write_text('x')\n    pool.load(p)"
    assert readers("new.py", source) == set()

"""Packages import only what ARCHITECTURE.md allows, and stay readable."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from clearhead.cli import VERBS

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "clearhead"
MAX_LINES = 400
MAX_LINES_OF_THE_TRANSFORMER = 2_000
MAX_LINES_OF_LATER_PARTS = 800
LATER = "clearhead.parts.later"
PRODUCTS = {"bmm", "baddbmm", "einsum", "matmul", "scaled_dot_product_attention"}
# The doctor looks at attention that is not ours; a trace puts attention together again from pieces
# that somebody has replaced, inside the model's own call; the exercises are attention as a learner
# writes it.
MAY_ATTEND = ("parts/", "doctor/", "inspection/attention_taps.py", "course/exercises/")

PURE = {"isinstance", "tuple", "Size", "endswith", "can_keep"}
"""Calls that may be in an `assert`: python -O leaves them out, and they change nothing."""

MAY_PRINT = ("cli/", "doctor/command.py")
"""The command line; and that of the doctor, which is a distribution of its own as well."""


@cache
def parsed(source: str) -> ast.Module:
    """Several tests look at every file."""
    return ast.parse(source)


@cache
def nodes(tree: ast.AST) -> list[ast.AST]:
    return list(ast.walk(tree))


def package_table(text: str) -> dict[str, set[str]]:
    """Package → packages it may import, from the first table of ARCHITECTURE.md."""
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|$", text.split("## ")[0], flags=re.M)
    return {package: set(re.findall(r"\w+", allowed)) for package, allowed in rows}


def package_of(module: str) -> str:
    """clearhead.parts.masks → parts; `clearhead` itself is in no row."""
    return module.removeprefix("clearhead").removeprefix(".").split(".")[0]


def imports(tree: ast.AST, file: str = "") -> set[str]:
    """Every clearhead module a file imports, at its top or inside a function. Relative imports are
    resolved in the doctor, which is also a distribution of its own; elsewhere there are none."""
    found: set[str] = set()
    for node in nodes(tree):
        match node:
            case ast.Import(names=names):
                found |= {alias.name for alias in names}
            case ast.ImportFrom(module="clearhead", names=names):
                found |= {
                    f"clearhead.{alias.name}" for alias in names if alias.name != "__version__"
                }
            case ast.ImportFrom(module=str(module), level=0):
                found.add(module)
            case ast.ImportFrom(module=module, level=level) if level and file.startswith("doctor/"):
                parent = ["clearhead", *file.split("/")[:-1]][: 1 - level or None]
                found.add(".".join([*parent, *([module] if module else [])]))
            case ast.ImportFrom(level=level) if level:
                found.add("clearhead.relative-import")
    return {name for name in found if name.split(".")[0] == "clearhead"}


def violations(file: str, source: str, packages: dict[str, set[str]]) -> list[str]:
    """What is wrong with one file, given by its path inside the package."""
    package = file.removesuffix(".py").split("/")[0]
    found: list[str] = []
    if len(source.splitlines()) > MAX_LINES:
        found.append(f"{file} has more than {MAX_LINES} lines: a part is missing")
    if package in ("__init__", "__main__"):
        return found
    if package not in packages:
        return [*found, f"{file} is in no package: add {package!r} to ARCHITECTURE.md"]
    tree = parsed(source)
    for module in sorted(imports(tree, file)):
        allowed = packages[package] | {package}
        if "everything" not in allowed and package_of(module) not in allowed:
            found.append(
                f"{file} imports {module}; {package} may import {sorted(packages[package])}"
            )
        if module.startswith(LATER) and file.startswith("parts/") and "/later/" not in file:
            found.append(f"{file} imports {module}; the paper needs nothing that came after it")
    if not file.startswith(MAY_ATTEND) and computes_attention(tree):
        found.append(f"{file} computes attention; only parts/ does")
    for node in nodes(tree):
        match node:
            case ast.FunctionDef(name="forward", args=ast.arguments(kwarg=ast.arg())):
                found.append(f"{file}:{node.lineno} forward takes **kwargs; name what it uses")
            case ast.Call(func=ast.Name(id="print")) if not file.startswith(MAY_PRINT):
                found.append(f"{file}:{node.lineno} prints; only cli/ prints, modules log")
            case ast.Attribute(value=ast.Name(id="os"), attr="environ" | "getenv"):
                if package != "environment":
                    found.append(f"{file}:{node.lineno} reads the environment; environment.py does")
            case ast.ImportFrom(module="os", names=names) if package != "environment":
                if {"environ", "getenv"} & {alias.name for alias in names}:
                    found.append(f"{file}:{node.lineno} reads the environment; environment.py does")
            case ast.Expr(value=ast.IfExp() | ast.BoolOp() | ast.ListComp()):
                found.append(f"{file}:{node.lineno} an expression is a statement; write if or for")
            case ast.Assert() if called := called_in(node) - PURE:
                found.append(
                    f"{file}:{node.lineno} asserts {called}; python -O leaves that call out"
                )
            case ast.Subscript(value=ast.Tuple() | ast.List(), slice=ast.Constant()):
                found.append(f"{file}:{node.lineno} builds a list for one of its items")
    return found


def called_in(tree: ast.AST) -> set[str]:
    """The names of the functions and methods that are called."""
    return {
        node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        for node in nodes(tree)
        if isinstance(node, ast.Call)
    }


def computes_attention(tree: ast.AST) -> bool:
    """It calls torch's kernel, or has both a softmax and a product of matrices."""
    called = called_in(tree)
    multiplies = bool(called & PRODUCTS) or any(
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult) for node in nodes(tree)
    )
    return "scaled_dot_product_attention" in called or ("softmax" in called and multiplies)


PACKAGES = package_table((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
FILES = {
    path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(SOURCE.rglob("*.py"))
    # Copied to learners, or shown to them in their language: no modules of the package.
    if not path.name.startswith("exercise.") and not path.name.endswith(".zh.py")
}


ELSEWHERE = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for folder in ("benchmarks", "tests", "tools")
    for path in sorted((ROOT / folder).rglob("*.py"))
}
MAY_IMPORT = {"tools": set[str](), "tests": {"tools"}, "benchmarks": {"tools", "tests"}}
"""Folder beside the package → folders beside the package that it may import."""


def graph(files: dict[str, str]) -> dict[str, set[str]]:
    """Module → modules of these files that it imports: at its top, in a function, or for a type
    checker alone."""
    modules = {
        file.removesuffix(".py").replace("/", ".").removesuffix(".__init__"): parsed(source)
        for file, source in files.items()
    }
    packages = {
        file.removesuffix("/__init__.py").replace("/", ".") for file in files if "__init__" in file
    }
    found: dict[str, set[str]] = {module: set() for module in modules}
    for module, tree in modules.items():
        for node in nodes(tree):
            match node:
                case ast.Import(names=names):
                    found[module] |= {alias.name for alias in names}
                case ast.ImportFrom(module=str() | None as home, names=names, level=level):
                    home = absolute(module, module in packages, home, level)
                    within = {f"{home}.{alias.name}" for alias in names}
                    found[module] |= within & modules.keys() or {home}
    return {module: (imported & modules.keys()) - {module} for module, imported in found.items()}


def absolute(module: str, is_package: bool, home: str | None, level: int) -> str:
    """What a relative import in a module names."""
    if not level:
        return str(home)
    parents = module.split(".")
    parents = parents[: len(parents) - level + is_package]
    return ".".join([*parents, home] if home else parents)


def circles(edges: dict[str, set[str]]) -> list[set[str]]:
    """Modules that import each other, perhaps through others."""
    reached: dict[str, set[str]] = {}
    for module in edges:
        seen, waiting = set[str](), [*edges[module]]
        while waiting:
            if (other := waiting.pop()) not in seen:
                seen.add(other)
                waiting += edges[other]
        reached[module] = seen
    found: list[set[str]] = []
    for module, seen in reached.items():
        circle = {other for other in seen if module in reached[other]}
        if circle and circle not in found:
            found.append(circle)
    return found


def test_no_files_import_each_other_in_a_circle():
    ours = graph({f"clearhead/{file}": source for file, source in FILES.items()})
    assert circles(ours) == []
    assert circles(graph(ELSEWHERE)) == []


def forbidden_folders(file: str, source: str) -> set[str]:
    """The folders beside the package that a file imports and may not."""
    own, imported = file.split("/")[0], set[str]()
    for node in nodes(parsed(source)):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imported.add(node.module.split(".")[0])
    return (imported & MAY_IMPORT.keys()) - MAY_IMPORT[own] - {own}


def test_tests_import_no_measurement_and_tools_import_neither():
    wrong = {file: forbidden_folders(file, source) for file, source in ELSEWHERE.items()}
    assert {file for file, folders in wrong.items() if folders} == set()
    assert forbidden_folders("tests/x.py", "from benchmarks.step import x") == {"benchmarks"}
    assert forbidden_folders("tools/x.py", "import tests.drawing") == {"tests"}
    assert forbidden_folders("benchmarks/x.py", "from tests import drawing") == set()


def test_a_planted_circle_is_found():
    files = {
        "clearhead/a.py": "from clearhead.b import B",
        "clearhead/b.py": "def f():\n    from clearhead import c",
        "clearhead/c.py": "if TYPE_CHECKING:\n    import clearhead.a",
        "clearhead/d.py": "from clearhead.a import A",
        "clearhead/e/__init__.py": "from .f import F",
        "clearhead/e/f.py": "from .. import e",
    }
    assert circles(graph(files)) == [
        {"clearhead.a", "clearhead.b", "clearhead.c"},
        {"clearhead.e", "clearhead.e.f"},
    ]


FLAG = re.compile(r"(?:^|[\s(`'\"])--[a-z]")
OTHER_PROGRAMS = re.compile(
    r"torchrun|zstd|local-dir|^--(always|dirty|abbrev=12|error-unmatch)$|"
    r"^--allow-origin$"  # in an answer to a page, which is read by neither
)
SPEAK_OF_FLAGS = ("cli/", "course/", "doctor/")
"""The command line; the exercises, which are run by it; and the doctor, which has its own."""


def flags(source: str) -> list[str]:
    """Texts of a file that speak the command line's language; explanations may."""
    tree = parsed(source)
    explained = {id(node.value) for node in nodes(tree) if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in nodes(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if id(node) not in explained and FLAG.search(node.value)
        if not OTHER_PROGRAMS.search(node.value)
    ]


def test_the_library_names_settings_as_python_does_and_not_as_flags():
    found = {
        file: flags(source) for file, source in FILES.items() if not file.startswith(SPEAK_OF_FLAGS)
    }
    assert {file: texts for file, texts in found.items() if texts} == {}
    assert flags("raise InputError(f'{x} is wrong; try --beam 2')") == [" is wrong; try --beam 2"]
    assert any(flags(source) for file, source in FILES.items() if file.startswith("cli/"))


def test_the_table_of_packages_has_no_circle():
    seen: set[str] = set()
    for package, allowed in PACKAGES.items():
        assert allowed <= seen | {"everything"}, f"{package} may import a package below it"
        seen.add(package)


def test_every_file_keeps_the_rules_of_its_package():
    assert len(FILES) > 20
    assert [v for file, source in FILES.items() for v in violations(file, source, PACKAGES)] == []


def public_types(source: str) -> list[str]:
    """Classes and named types of a module: `class Batch`, `Row = tuple[…]`."""
    found: list[str] = []
    for node in parsed(source).body:
        match node:
            case ast.ClassDef(name=name):
                found.append(name)
            case ast.Assign(targets=[ast.Name(id=name)]):
                found.append(name)
    return [name for name in found if re.fullmatch(r"[A-Z]\w*[a-z]\w*", name)]


def test_the_name_of_a_class_finds_one_class():
    homes: dict[str, list[str]] = {}
    for file, source in FILES.items():
        for name in public_types(source):
            homes.setdefault(name, []).append(file)
    twice = {name: files for name, files in homes.items() if len(files) > 1}
    assert not twice


def test_the_transformer_can_be_read_in_an_evening():
    lines = {
        file: len(source.splitlines())
        for file, source in FILES.items()
        if file.split("/")[0] in ("parts", "stacks", "models")
    }
    later = {file: n for file, n in lines.items() if file.startswith("parts/later/")}
    paper = {file: n for file, n in lines.items() if file not in later}
    assert 0 < sum(paper.values()) <= MAX_LINES_OF_THE_TRANSFORMER, paper
    assert 0 < sum(later.values()) <= MAX_LINES_OF_LATER_PARTS, later


@pytest.mark.parametrize(
    ("file", "source", "complaint"),
    [
        ("parts/new.py", "from clearhead.config import ModelConfig", "parts may import"),
        ("parts/new.py", "def f():\n    import clearhead.models.assemble", "parts may import"),
        ("parts/new.py", "from clearhead import models", "parts may import"),
        ("parts/new.py", "from ..models import assemble", "relative-import"),
        ("parts/new.py", "from clearhead.parts.later.alibi import AlibiPositions", "the paper"),
        ("stacks/new.py", "from clearhead.models import preset", "stacks may import"),
        ("doctor/new.py", "from clearhead.parts import attention", "doctor may import"),
        ("doctor/new/new.py", "from ...parts import attention", "doctor may import"),
        ("attic/new.py", "x = 1", "is in no package"),
        ("models/new.py", "x = 1\n" * 401, "more than 400 lines"),
        ("models/new.py", "class A:\n  def forward(self, x, **kwargs): ...", "takes **kwargs"),
        ("training/new.py", "print('loss')", "prints"),
        ("decoding/new.py", "y = F.scaled_dot_product_attention(q, k, v)", "computes attention"),
        ("decoding/new.py", "y = torch.bmm(q, k).softmax(dim=-1)", "computes attention"),
        ("models/new.py", "w = softmax(q @ k.mT)", "computes attention"),
        ("training/new.py", "import os\nrank = os.environ['RANK']", "reads the environment"),
        ("training/new.py", "from os import getenv", "reads the environment"),
        ("training/new.py", "say(x) if x else None", "an expression is a statement"),
        ("training/new.py", "x and x.close()", "an expression is a statement"),
        ("training/new.py", "f = lambda: (wait(), result())[1]", "builds a list"),
        ("config/new.py", "assert self.config() is not None", "asserts {'config'}"),
    ],
)
def test_a_planted_violation_is_found(file: str, source: str, complaint: str):
    assert any(complaint in v for v in violations(file, source, PACKAGES))


def test_a_file_that_keeps_the_rules_is_not_accused():
    source = (
        "import os\nfrom clearhead.shapes import Float\nfrom clearhead.errors import InputError"
    )
    assert violations("parts/new.py", source, PACKAGES) == []


SHOWING = ("data", "describe", "learn", "play", "quickstart", "runs")
"""The verbs that only show things, with their further files (`learn_watch.py`)."""
OF_THE_COMMAND_LINE = {"api", "cli", "config", "errors", "environment", "files", "processes"}
PRINTING = {
    "add_diff_options", "add_examine_options", "as_html", "as_renderable", "captured", "curve_text",
    "curves_png", "describe_defects", "labels_as_written", "preset", "published_family",
    "published_lines", "published_names", "step_line", "study_names", "table_of_families",
    "validation_line",
}  # fmt: skip
"""Functions below the API that a verb may call: they print, or read what was typed."""


def functions_below_the_api(file: str, source: str) -> set[str]:
    """The functions that a file of the command line imports from below the API. Types and constants
    begin with a capital letter. `lines.py` reads what was typed."""
    name = file.removeprefix("cli/").removesuffix(".py")
    if not file.startswith("cli/") or name.split("_")[0] in SHOWING or name == "lines":
        return set()
    return {
        alias.name
        for node in nodes(parsed(source))
        if isinstance(node, ast.ImportFrom) and node.module
        if node.module.startswith("clearhead.")
        and package_of(node.module) not in OF_THE_COMMAND_LINE
        for alias in node.names
        if not alias.name[0].isupper()
    }


def test_a_verb_calls_the_api_and_below_it_only_what_prints():
    called = {file: functions_below_the_api(file, source) for file, source in FILES.items()}
    assert {file: names - PRINTING for file, names in called.items() if names - PRINTING} == {}
    assert {name for names in called.values() for name in names} == PRINTING
    source = "def f():\n    from clearhead.data.corpus import Corpus, open_corpus"
    assert functions_below_the_api("cli/x.py", source) == {"open_corpus"}
    assert functions_below_the_api("cli/learn_x.py", source) == set()


VERB = re.compile(rf"clearhead ({'|'.join(VERBS)})\b")
NOT_FOR_READERS_OF_PYTHON = re.compile(
    r"explains them\)$|: made by clearhead new|· clearhead see$|^clearhead selftest on|"  # titles
    r"run it in a terminal|"  # there is no other way
    r"^clearhead study (run|page) |"  # a page that says how it was made
    r"the field 'confidence'|to a file with|"  # answers to requests
    r"describe lists every key"  # of keys that were typed
)


def commands(source: str) -> list[str]:
    """Texts of a file that name a command of the shell; explanations may."""
    tree = parsed(source)
    explained = {id(node.value) for node in nodes(tree) if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in nodes(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if id(node) not in explained and VERB.search(node.value.replace("`", ""))
        if not NOT_FOR_READERS_OF_PYTHON.search(node.value)
    ]


def test_the_library_names_functions_and_not_commands():
    found = {
        file: commands(source)
        for file, source in FILES.items()
        if not file.startswith(SPEAK_OF_FLAGS)
    }
    assert {file: texts for file, texts in found.items() if texts} == {}
    assert commands("raise DataError(f'{x} is missing; run clearhead prepare')") != []
    assert commands("'clearhead reads it'") == []


def test_nothing_but_the_command_line_imports_the_command_line():
    importers = [
        file
        for file, source in FILES.items()
        if any(package_of(module) == "cli" for module in imports(parsed(source)))
    ]
    assert {file.split("/")[0] for file in importers} <= {"cli", "__main__.py"}
    assert "__main__.py" in importers

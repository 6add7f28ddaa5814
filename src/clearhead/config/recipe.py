"""Recipes: a recipe is one TOML file with a table for each part of a run. Dotted keys override
it."""

import json
import logging
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from clearhead.config.batches import BatchConfig
from clearhead.config.checks import user_path
from clearhead.config.data import DataConfig
from clearhead.config.model import ModelConfig
from clearhead.config.train import TrainConfig
from clearhead.config.usual_names import remedy_for_key
from clearhead.errors import (
    BETWEEN,
    ClearheadError,
    ConfigError,
    InputError,
    closest,
    function,
    nearest,
    with_marks,
)

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

_log = logging.getLogger("clearhead")
SHIPPED = Path(__file__).parent.parent / "recipes"
TEMPLATES = SHIPPED / "templates"  # `clearhead new` starts from these; users cannot name them
SECTIONS: dict[str, type] = {
    "data": DataConfig,
    "batches": BatchConfig,
    "model": ModelConfig,
    "train": TrainConfig,
}

Tables = Mapping[str, Mapping[str, Any]]
"""Values by table and key: {"train": {"steps": 200}}."""
FROM_DATA = ("model.vocab_size", "model.target_vocab_size", "model.pad_id", "model.labels")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The checked content of a recipe file. A table that the file lacks is None, unless the table's
    defaults suit every recipe."""

    name: str
    data: DataConfig
    batches: BatchConfig
    model: ModelConfig | None = None
    train: TrainConfig = field(default_factory=TrainConfig)


def toml_path(name: str, shipped: Path) -> Path:
    """Find the file of a recipe: by its path, or a shipped recipe by its name."""
    return user_path(name) if name.endswith(".toml") else shipped / f"{name}.toml"


def check_recipe_name(name: object) -> None:
    """Raises unless the name of a recipe can also be the name of a folder: that of its run, of its
    prepared data and of its text."""
    if not isinstance(name, str) or not name:
        raise InputError(f"name={name!r:.60} is not a name; give a string, such as 'my-pairs'")
    if name in (".", "..") or any(letter in name for letter in "/\\\0"):
        raise InputError(
            f"name={name!r:.60} cannot be the name of a folder; leave out slashes, as in 'my-pairs'"
        )


def read_toml(path: Path) -> dict[str, Any]:
    """Read the tables of a TOML file."""
    text = ""
    try:
        text = path.read_text(encoding="utf-8-sig")
        return tomllib.loads(text)
    except OSError as error:
        raise _unreadable(path, error) from None
    except (ValueError, RecursionError) as error:
        known = _usual_mistake(text, str(error))
        raise ClearheadError(
            f"{path}{known}"
            if known
            else f"{path} is not a TOML file: {error}; texts are in quotes"
        ) from None


def _usual_mistake(text: str, error: str) -> str:
    """Describe a mistake that many make in TOML, with its line; "" for any other."""
    place = re.search(r"at line (\d+), column (\d+)", error)
    lines = text.splitlines()
    if place is None or not 1 <= int(place[1]) <= len(lines):
        return ""
    number, column = int(place[1]), int(place[2])
    line = lines[number - 1]
    word = re.match(r"(True|False|None)\b", line[max(0, column - 1) :])
    if word is not None and word[1] == "None":
        return f", line {number}: TOML has no None; leave the key out"
    if word is not None:
        return f", line {number}: TOML writes {word[1].lower()} in lower case, not {word[1]}"
    quoted = [match for match in re.finditer(r'"([^"]*)"', line) if "\\" in match[1]]
    near = [match for match in quoted if match.start() < column <= match.end() + 1]
    if near:
        value = near[0][1][:100]
        slashes = value.replace("\\", "/")
        return (
            f", line {number}: a backslash in double quotes begins an escape; write '{value}' in "
            f'single quotes, or with slashes: "{slashes}"'
        )
    return ""


def is_there(path: Path) -> bool:
    """Tell whether there is such a file. Raises if the system refuses to look."""
    try:
        return path.is_file()
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError) -> ClearheadError:
    return ClearheadError(
        f"{path} cannot be read ({error.strerror}); check the path and its permissions"
    )


def recipe_names() -> list[str]:
    """The names of the recipes that ship with clearhead."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def recipe_keys() -> list[str]:
    """Every key that a recipe can hold and the command line can override: `data.vocab_size`, …"""
    return [f"{section}.{field.name}" for section, of in SECTIONS.items() for field in fields(of)]


def load_recipe(name: str | Path, overrides: Sequence[tuple[str, str]] = ()) -> Recipe:
    """Reads a shipped recipe by name, or any file by its path. Overrides are (key, text)."""
    name = str(name)
    path = toml_path(name, SHIPPED)
    if not is_there(path):
        remedy = f"{nearest(name, recipe_names())} (or give the path of a .toml file)"
        if Path(f"{name}.toml").is_file():
            remedy = f"give the name of a file with its extension: {name}.toml"
        elif Path(name).suffix.lower() in (".yaml", ".yml", ".json") and Path(name).is_file():
            remedy = (
                "a recipe is a TOML file, with [model] and d_model = 64 for what YAML writes as "
                f"model: and d_model: 64; to see one: {function('describe')} copy-task"
            )
        elif Path(name).is_file():
            remedy = (
                "that is a file, but not a recipe (.toml); if it is text of your own, make a "
                f"recipe for it with {function('recipe_for')}"
            )
        elif Path(name).is_dir():
            remedy = "that is a folder: give the path of a .toml file in it"
        elif name.endswith(".toml"):
            others = [str(other) for other in path.parent.glob("*.toml")]
            close = closest(str(path), others, 0.75)
            remedy = f"did you mean {close!r}?" if close else "check the path"
            remedy += f", or make one: {function('recipe_for')}"
        raise ClearheadError(f"there is no recipe {name!r}; {remedy}")
    tables = read_toml(path)
    _check_keys(tables, str(path))
    in_file = [f"{section}.{key}" for section in tables for key in tables[section]]
    _refuse_what_data_decide([*in_file, *(key for key, _ in overrides)])
    for key, _ in overrides:
        if key not in recipe_keys():
            remedy = remedy_for_key(key, recipe_keys()) or "clearhead describe lists every key"
            raise ClearheadError(f"there is no key {key!r}; {remedy}")
    # A run's own recipe.toml has the name of its run.
    name = path.resolve().parent.name if path.name == "recipe.toml" else path.stem
    recipe = Recipe(name=name, **_parse(tables, overrides))
    steps = tables.get("train", {}).get("steps", TrainConfig.steps)
    return validate_as_often(recipe, steps, [key for key, _ in overrides])


def validate_as_often(recipe: Recipe, before: int, keys: Sequence[str]) -> Recipe:
    """Keep the number of validations if the run becomes more than twice as long as `before`, the
    number of steps in the file. If the user sets how often to validate, nothing changes. `keys` are
    the keys that replace the file's."""
    steps, often = recipe.train.steps, recipe.train.validate_every
    if "train.steps" not in keys or "train.validate_every" in keys or not 0 < 2 * before < steps:
        return recipe
    seldom = round(often * steps / before)
    if seldom != often:
        _log.warning(
            f"train.validate_every={seldom}, not {often}: the recipe's number of validations, over "
            f"{steps:,} steps; to choose another, give train.validate_every"
        )
    return replace(recipe, train=replace(recipe.train, validate_every=seldom))


def revise_recipe(recipe: Recipe, tables: Tables) -> Recipe:
    """The recipe with other values in some of its tables, checked like those of a file."""
    whole: dict[str, Any] = {}
    for section in SECTIONS:
        values = getattr(recipe, section)
        if values is not None:
            whole[section] = {
                key: value
                for key, value in asdict(values).items()
                if f"{section}.{key}" not in FROM_DATA
            }
    return replace(recipe, **_parse(_merged(whole, tables), ()))


def revise_model(
    model: ModelConfig, train: TrainConfig, overrides: Sequence[tuple[str, str]]
) -> tuple[ModelConfig, TrainConfig]:
    """Apply overrides, as `load_recipe` takes them, to a model without a recipe and to its
    training. Since there are no data that decide the vocabulary, `model.vocab_size` can be
    overridden too."""
    whole = {"model": asdict(model), "train": asdict(train)}
    changed = _parse(whole, overrides, needed=())
    return changed["model"], changed["train"]


def _merged(base: dict[str, Any], tables: Tables) -> dict[str, Any]:
    """Replace values in tables by those of other tables. Paths become strings, as in a file."""
    sections = {
        section: {key: _plain(value) for key, value in table.items()}
        for section, table in tables.items()
    }
    _check_keys(sections, "recipe")
    merged = dict(base)
    for section, table in sections.items():
        merged[section] = {**base.get(section, {}), **table}
    _refuse_what_data_decide([f"{section}.{key}" for section in merged for key in merged[section]])
    return merged


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _refuse_what_data_decide(keys: Sequence[str]) -> None:
    for key in FROM_DATA:
        if key in keys:
            hint = "data.vocab_size sets the size of a tokenizer"
            if key == "model.labels":
                hint = "data.labels names them, with data.label_as='class'"
            raise ClearheadError(f"{key} comes from the prepared data; leave it out ({hint})")


def toml_value(value: object) -> str:
    """Write a value as TOML. JSON writes words, numbers, strings and lists in the same way, except
    for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", r"\u007f")


def recipe_toml(recipe: Recipe) -> str:
    """Write the whole recipe as a file that `load_recipe` reads. Keys whose value is None are left
    out."""
    lines = [f"# {recipe.name}: every key as it was used (clearhead describe FILE explains them)"]
    for section in SECTIONS:
        if getattr(recipe, section) is not None:
            lines += ["", f"[{section}]"]
            values = asdict(getattr(recipe, section))
            lines += [
                f"{key} = {toml_value(value)}"
                for key, value in values.items()
                if value is not None and f"{section}.{key}" not in FROM_DATA
            ]
    return "\n".join(lines) + "\n"


def with_values(recipe: Recipe, values: Mapping[str, object]) -> Recipe:
    """Copy the recipe with other values, given by their dotted keys: `{"train.steps": 200}`."""
    tables: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        section, name = key.split(".")
        tables.setdefault(section, {})[name] = value
    changed = {name: replace(getattr(recipe, name), **table) for name, table in tables.items()}
    return replace(recipe, **changed)


def _check_keys(tables: dict[str, Any], path: str) -> None:
    for section, table in tables.items():
        if section not in SECTIONS or not isinstance(table, dict):
            remedy = nearest(section, SECTIONS)
            if not tables.keys() & SECTIONS.keys():
                remedy += f"; is it a recipe? {function('recipe_for')} makes one"
            raise ClearheadError(f"{path}: there is no table [{section}]; {remedy}")
        names = [field.name for field in fields(SECTIONS[section])]
        for key in table:
            if key not in names:
                remedy = remedy_for_key(f"{section}.{key}", recipe_keys())
                raise ClearheadError(
                    f"{path}: there is no key {section}.{key}; {remedy or nearest(key, names)}"
                )


def _parse(
    tables: dict[str, Any],
    overrides: Sequence[tuple[str, str]],
    needed: Sequence[str] = ("data", "batches", "train"),
) -> dict[str, Any]:
    """Convert strings and TOML values to the types that the configurations declare, by
    jsonargparse."""
    from jsonargparse import ArgumentError, Namespace

    sections = {*needed, *tables, *(key.split(".")[0] for key, _ in overrides)}
    parser = _parser(tuple(sorted(sections)))
    try:
        values = parser.parse_object(tables)
        if overrides:
            values = parser.parse_args([f"--{key}={text}" for key, text in overrides], values)
    except ArgumentError as error:
        raise _type_error(str(error), tables, dict(overrides)) from None
    except OverflowError as error:
        raise ClearheadError(f"a number in the recipe is too large: {error}") from None
    parsed: dict[str, Any] = {}
    for section in sections:
        part = values[section]
        assert isinstance(part, Namespace)
        try:
            parsed[section] = SECTIONS[section](**part.as_dict())
        except ConfigError as error:
            raise _with_whole_keys(section, error) from None
    return parsed


def _with_whole_keys(section: str, error: ConfigError) -> ConfigError:
    """Return the error with every setting of the section as a key of a recipe: `train.lr`, not
    `lr`."""
    names = "|".join(field.name for field in fields(SECTIONS[section]))
    is_setting = re.compile(rf"""(?<![\w.'"])({names})(?=[={BETWEEN}])""")
    rule, remedy = (
        is_setting.sub(rf"{section}.\1", with_marks(text)) for text in (error.rule, error.remedy)
    )
    return ConfigError(f"{section}.{error.field}", error.value, rule, remedy)


@cache
def _parser(sections: tuple[str, ...]) -> "ArgumentParser":
    """Return the parser for the keys of these tables. It is cached, as building it takes as long as
    using it."""
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(exit_on_error=False)
    for section in sections:
        parser.add_class_arguments(SECTIONS[section], section)
    return parser


def _type_error(message: str, tables: dict[str, Any], overrides: dict[str, str]) -> ClearheadError:
    """Say in one line which key has a wrong value; jsonargparse takes a dozen lines for it."""
    match = re.search(r'key "(\w+)\.(\w+)"', message)
    if match is None:
        return ClearheadError(" ".join(message.split()))
    section, name = match.groups()
    hint = get_type_hints(SECTIONS[section])[name]
    key = f"{section}.{name}"
    value = overrides.get(key, tables.get(section, {}).get(name))
    rule = "is not a valid choice" if _choices(hint) else "has the wrong type"
    return ConfigError(key, value, rule, f"write {in_words(hint)}")


def _choices(hint: Any) -> tuple[Any, ...]:
    """Return the words from which a value, or each value of a list, must be chosen. There are none
    if every value of the type is allowed."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return next((choices for kind in get_args(hint) if (choices := _choices(kind))), ())


def in_words(hint: Any) -> str:
    """Describes the allowed values, for people who do not read Python's types."""
    plain = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "a text in quotes",
    }
    if hint in plain:
        return plain[hint]
    kinds = [kind for kind in get_args(hint) if kind not in (type(None), Ellipsis)]
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(repr, kinds))}"
    if get_origin(hint) in (tuple, list):
        if words := _choices(hint):
            return f"a list of some of {', '.join(map(repr, words))}"
        return "a list, such as ['a', 'b']" if kinds == [str] else "a list in brackets: [ ]"
    return " or ".join(in_words(kind) for kind in kinds) or "another value"

"""Pages from docstrings, dataclasses and the command line, as directives of Sphinx:

{api} clearhead            every name that `import clearhead` offers
{api} clearhead.parts.masks    the public names of a module
{recipe-keys}              every key of a recipe, with its default and its explanation
{commands}                 every verb, with its options
"""

import argparse
import dataclasses
import inspect
from importlib import import_module
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class _Made(SphinxDirective):
    """A directive whose content is made as Markdown."""

    def lines(self) -> list[str]:
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        node = nodes.container()
        self.state.nested_parse(StringList(self.lines(), self.get_source_info()[0]), 0, node)
        return node.children


class Api(_Made):
    """The public names of a module: signature and docstring of each."""

    required_arguments = 1

    def lines(self) -> list[str]:
        module = import_module(self.arguments[0])
        names = getattr(module, "__all__", None) or [
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
        ]
        found: list[str] = []
        for name in names:
            value = getattr(module, name)
            if callable(value):
                found += _entry(name, value)
        return found


def _entry(name: str, value: Any) -> list[str]:
    lines = ["```python", *_signature(name, value), "```", ""]
    lines += [*inspect.cleandoc(inspect.getdoc(value) or "").splitlines(), ""]
    if inspect.isclass(value):
        for method, function in vars(value).items():
            function = getattr(function, "__func__", function)
            if not method.startswith("_") and inspect.isfunction(function):
                text = " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())
                lines += [f"- `{method}{_short(function)}`: {text}"]
        lines.append("")
    return lines


def _signature(name: str, value: Any) -> list[str]:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return [name]
    parameters = [
        p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()
    ]
    text = f"{name}({', '.join(map(str, parameters))})"
    if len(text) <= 92:
        return [text]
    return [f"{name}(", *(f"    {p}," for p in parameters), ")"]


def _short(function: Any) -> str:
    names = [n for n in inspect.signature(function).parameters if n not in ("self", "cls")]
    return f"({', '.join(names)})"


class RecipeKeys(_Made):
    """Every table and key of a recipe."""

    def lines(self) -> list[str]:
        from clearhead.config.explain import explanations
        from clearhead.config.recipe import SECTIONS

        found: list[str] = []
        for section, config in SECTIONS.items():
            found += [
                "",
                f"**\\[{section}\\]**",
                "",
                "| key | default | meaning |",
                "|---|---|---|",
            ]
            for field in dataclasses.fields(config):
                default = "" if field.default is dataclasses.MISSING else f"`{field.default!r}`"
                meaning = explanations(config)[field.name].replace("|", "\\|")
                found.append(f"| `{field.name}` | {default} | {meaning} |")
        return found


class Commands(_Made):
    """Every verb and its options."""

    def lines(self) -> list[str]:
        from clearhead.cli import VERBS

        found: list[str] = []
        for verb, what in VERBS.items():
            module = import_module(f"clearhead.cli.{verb}{'_' if verb == 'import' else ''}")
            parser = argparse.ArgumentParser(prog=f"clearhead {verb}", add_help=False)
            module.add_arguments(parser)
            found += [
                "",
                f"**clearhead {verb}**: {what}",
                "",
                "| argument | meaning |",
                "|---|---|",
            ]
            for action in parser._actions:
                names = ", ".join(f"`{name}`" for name in action.option_strings or [action.dest])
                meaning = " ".join(str(action.help or "").split()).replace("|", "\\|")
                found.append(f"| {names} | {meaning.replace('%%', '%')} |")
        return found


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_directive("api", Api)
    app.add_directive("recipe-keys", RecipeKeys)
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True}

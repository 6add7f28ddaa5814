"""Adds the package from clearhead's tree. An sdist has a copy of its own, which hatchling finds."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAME = "transformer_doctor"


class AddDoctor(BuildHookInterface):
    """Used for the sdist and for the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Called before either is built."""
        here = Path(self.root)
        tree = here.parent / "src" / "clearhead" / "doctor"
        if not (here / NAME).is_dir():
            build_data["force_include"][str(tree)] = NAME

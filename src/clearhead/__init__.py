"""A Transformer you can see through: read it, prove it, train it on your own text."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clearhead.config import ModelConfig as ModelConfig
    from clearhead.interop.model_folder import load_model as load_model
    from clearhead.interop.model_folder import save_model as save_model
    from clearhead.models import build_model as build_model
    from clearhead.models import count_parameters as count_parameters
    from clearhead.models import preset as preset
    from clearhead.parts.recorder import Recorder as Recorder

__version__ = "0.1.0"

# The front door. Each name is imported when it is first asked for, so that `import clearhead`,
# and with it every command's --help, is instant.
_HOMES = {
    "ModelConfig": "clearhead.config",
    "Recorder": "clearhead.parts.recorder",
    "build_model": "clearhead.models",
    "count_parameters": "clearhead.models",
    "load_model": "clearhead.interop.model_folder",
    "preset": "clearhead.models",
    "save_model": "clearhead.interop.model_folder",
}
__all__ = [
    "ModelConfig",
    "Recorder",
    "build_model",
    "count_parameters",
    "load_model",
    "preset",
    "save_model",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'clearhead' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

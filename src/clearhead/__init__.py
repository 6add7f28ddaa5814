"""A Transformer you can see through: read it, prove it, train it on your own text."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clearhead.config import ModelConfig as ModelConfig
    from clearhead.inspection.edits import add as add
    from clearhead.inspection.edits import change as change
    from clearhead.inspection.edits import put as put
    from clearhead.inspection.edits import scale as scale
    from clearhead.inspection.edits import zero as zero
    from clearhead.inspection.heads import head_kinds as head_kinds
    from clearhead.inspection.lens import attribution as attribution
    from clearhead.inspection.lens import logit_lens as logit_lens
    from clearhead.inspection.lens import rollout as rollout
    from clearhead.inspection.sites import names as names
    from clearhead.inspection.sweep import head_ablation as head_ablation
    from clearhead.inspection.sweep import patching as patching
    from clearhead.inspection.sweep import sweep as sweep
    from clearhead.inspection.trace import mean_of as mean_of
    from clearhead.inspection.trace import trace as trace
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
    "add": "clearhead.inspection.edits",
    "attribution": "clearhead.inspection.lens",
    "build_model": "clearhead.models",
    "change": "clearhead.inspection.edits",
    "count_parameters": "clearhead.models",
    "head_ablation": "clearhead.inspection.sweep",
    "head_kinds": "clearhead.inspection.heads",
    "load_model": "clearhead.interop.model_folder",
    "logit_lens": "clearhead.inspection.lens",
    "mean_of": "clearhead.inspection.trace",
    "names": "clearhead.inspection.sites",
    "patching": "clearhead.inspection.sweep",
    "preset": "clearhead.models",
    "put": "clearhead.inspection.edits",
    "rollout": "clearhead.inspection.lens",
    "save_model": "clearhead.interop.model_folder",
    "scale": "clearhead.inspection.edits",
    "sweep": "clearhead.inspection.sweep",
    "trace": "clearhead.inspection.trace",
    "zero": "clearhead.inspection.edits",
}
__all__ = [
    "ModelConfig",
    "Recorder",
    "add",
    "attribution",
    "build_model",
    "change",
    "count_parameters",
    "head_ablation",
    "head_kinds",
    "load_model",
    "logit_lens",
    "mean_of",
    "names",
    "patching",
    "preset",
    "put",
    "rollout",
    "save_model",
    "scale",
    "sweep",
    "trace",
    "zero",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'clearhead' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

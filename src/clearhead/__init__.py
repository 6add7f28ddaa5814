"""A Transformer you can see through: read it, prove it, train it on your own text.

    import clearhead as ch
    ch.load("copy-task").translate("hello")

Docs: docs/en/python.md, docs/zh/python.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clearhead.api.building import build_model as build_model
    from clearhead.api.comparing import diff as diff
    from clearhead.api.evaluating import Evaluation as Evaluation
    from clearhead.api.evaluating import evaluate as evaluate
    from clearhead.api.examining import examine as examine
    from clearhead.api.exporting import export as export
    from clearhead.api.exporting import import_model as import_model
    from clearhead.api.loading import load as load
    from clearhead.api.loading import shipped_models as shipped_models
    from clearhead.api.own_text import recipe_for as recipe_for
    from clearhead.api.planning import plan as plan
    from clearhead.api.preparing import prepare as prepare
    from clearhead.api.recipes import recipe as recipe
    from clearhead.api.seeing import Microscope as Microscope
    from clearhead.api.seeing import see as see
    from clearhead.api.serving import serve as serve
    from clearhead.api.studying import Study as Study
    from clearhead.api.studying import study as study
    from clearhead.api.testing import selftest as selftest
    from clearhead.api.text_model import TextModel as TextModel
    from clearhead.api.trained_run import TrainedRun as TrainedRun
    from clearhead.api.training import train as train
    from clearhead.api.training import training_plan as training_plan
    from clearhead.config import BatchConfig as BatchConfig
    from clearhead.config import DataConfig as DataConfig
    from clearhead.config import ModelConfig as ModelConfig
    from clearhead.config import Recipe as Recipe
    from clearhead.config import TrainConfig as TrainConfig
    from clearhead.errors import ClearheadError as ClearheadError
    from clearhead.inspection.edits import add as add
    from clearhead.inspection.edits import change as change
    from clearhead.inspection.edits import multiply as multiply
    from clearhead.inspection.edits import put as put
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
    from clearhead.models import count_parameters as count_parameters
    from clearhead.models import preset as preset
    from clearhead.parts.recorder import Recorder as Recorder

__version__ = "0.2.0"

# Each name is imported when it is first asked for, so that `import clearhead`, and with it every
# command's --help, is instant.
_HOMES = {
    "BatchConfig": "clearhead.config",
    "ClearheadError": "clearhead.errors",
    "DataConfig": "clearhead.config",
    "Evaluation": "clearhead.api.evaluating",
    "Microscope": "clearhead.api.seeing",
    "ModelConfig": "clearhead.config",
    "Recipe": "clearhead.config",
    "Recorder": "clearhead.parts.recorder",
    "Study": "clearhead.api.studying",
    "TextModel": "clearhead.api.text_model",
    "TrainConfig": "clearhead.config",
    "TrainedRun": "clearhead.api.trained_run",
    "add": "clearhead.inspection.edits",
    "attribution": "clearhead.inspection.lens",
    "build_model": "clearhead.api.building",
    "change": "clearhead.inspection.edits",
    "count_parameters": "clearhead.models",
    "diff": "clearhead.api.comparing",
    "evaluate": "clearhead.api.evaluating",
    "examine": "clearhead.api.examining",
    "export": "clearhead.api.exporting",
    "head_ablation": "clearhead.inspection.sweep",
    "head_kinds": "clearhead.inspection.heads",
    "import_model": "clearhead.api.exporting",
    "load": "clearhead.api.loading",
    "load_model": "clearhead.interop.model_folder",
    "logit_lens": "clearhead.inspection.lens",
    "mean_of": "clearhead.inspection.trace",
    "multiply": "clearhead.inspection.edits",
    "names": "clearhead.inspection.sites",
    "patching": "clearhead.inspection.sweep",
    "plan": "clearhead.api.planning",
    "prepare": "clearhead.api.preparing",
    "preset": "clearhead.models",
    "put": "clearhead.inspection.edits",
    "recipe": "clearhead.api.recipes",
    "recipe_for": "clearhead.api.own_text",
    "rollout": "clearhead.inspection.lens",
    "save_model": "clearhead.interop.model_folder",
    "see": "clearhead.api.seeing",
    "selftest": "clearhead.api.testing",
    "serve": "clearhead.api.serving",
    "shipped_models": "clearhead.api.loading",
    "study": "clearhead.api.studying",
    "sweep": "clearhead.inspection.sweep",
    "trace": "clearhead.inspection.trace",
    "train": "clearhead.api.training",
    "training_plan": "clearhead.api.training",
    "zero": "clearhead.inspection.edits",
}
__all__ = [
    "BatchConfig",
    "ClearheadError",
    "DataConfig",
    "Evaluation",
    "Microscope",
    "ModelConfig",
    "Recipe",
    "Recorder",
    "Study",
    "TextModel",
    "TrainConfig",
    "TrainedRun",
    "add",
    "attribution",
    "build_model",
    "change",
    "count_parameters",
    "diff",
    "evaluate",
    "examine",
    "export",
    "head_ablation",
    "head_kinds",
    "import_model",
    "load",
    "load_model",
    "logit_lens",
    "mean_of",
    "multiply",
    "names",
    "patching",
    "plan",
    "prepare",
    "preset",
    "put",
    "recipe",
    "recipe_for",
    "rollout",
    "save_model",
    "see",
    "selftest",
    "serve",
    "shipped_models",
    "study",
    "sweep",
    "trace",
    "train",
    "training_plan",
    "zero",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'clearhead' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

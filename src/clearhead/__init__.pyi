"""The public names for a type checker. At run time, `__init__.py` imports each on first use."""

from clearhead.api.building import build_model as build_model
from clearhead.api.calibrating import calibrate as calibrate
from clearhead.api.comparing import diff as diff
from clearhead.api.evaluating import evaluate as evaluate
from clearhead.api.examining import examine as examine
from clearhead.api.exporting import export as export
from clearhead.api.loading import import_model as import_model
from clearhead.api.loading import load as load
from clearhead.api.locating import shipped_models as shipped_models
from clearhead.api.measures import Evaluation as Evaluation
from clearhead.api.microscope import Microscope as Microscope
from clearhead.api.microscope import see as see
from clearhead.api.planning import plan as plan
from clearhead.api.preparing import prepare as prepare
from clearhead.api.recipe_for import recipe_for as recipe_for
from clearhead.api.recipes import recipe as recipe
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
from clearhead.inspection import edit as edit
from clearhead.inspection.heads import head_kinds as head_kinds
from clearhead.inspection.lens import attribution as attribution
from clearhead.inspection.lens import logit_lens as logit_lens
from clearhead.inspection.lens import rollout as rollout
from clearhead.inspection.sweep import head_ablation as head_ablation
from clearhead.inspection.sweep import patching as patching
from clearhead.inspection.sweep import sweep as sweep
from clearhead.inspection.trace import mean_of as mean_of
from clearhead.inspection.trace import trace as trace
from clearhead.intake.own_text import OwnText as OwnText
from clearhead.interop.model_folder import load_model as load_model
from clearhead.interop.model_folder import save_model as save_model
from clearhead.models import count_parameters as count_parameters
from clearhead.models import preset as preset
from clearhead.parts.recorder import Recorder as Recorder

__all__: list[str]
__version__: str

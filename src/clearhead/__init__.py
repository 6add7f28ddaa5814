"""A Transformer you can see through: read it, prove it, train it on your own text.

    import clearhead as ch
    ch.load("copy-task").translate("hello")

Docs: docs/en/python.md, docs/zh/python.md.
"""

from importlib import import_module

__version__ = "0.3.0"

_HOMES = {
    "AttentionMap": "clearhead.inspection.attention",
    "Attribution": "clearhead.inspection.lens",
    "BatchConfig": "clearhead.config",
    "Certificate": "clearhead.interop.certificate",
    "Classified": "clearhead.api.results",
    "ClearheadError": "clearhead.errors",
    "ClusterPlan": "clearhead.scale.plan",
    "Corpus": "clearhead.data.corpus",
    "DataConfig": "clearhead.config",
    "Evaluation": "clearhead.api.results",
    "Examination": "clearhead.doctor.report",
    "Filled": "clearhead.localise.filling",
    "Grid": "clearhead.inspection.sweep",
    "HeadShares": "clearhead.inspection.heads",
    "LearntFrom": "clearhead.data.learnt_from",
    "Lens": "clearhead.inspection.lens",
    "Listener": "clearhead.training.report",
    "Microscope": "clearhead.api.microscope",
    "ModelConfig": "clearhead.config",
    "Output": "clearhead.decoding.results",
    "OwnText": "clearhead.intake.own_text",
    "ParameterCount": "clearhead.models.parameters",
    "PortReport": "clearhead.doctor.diff.report",
    "Recipe": "clearhead.config",
    "Recorder": "clearhead.parts.recorder",
    "Scored": "clearhead.decoding.results",
    "SelfTest": "clearhead.devices.report",
    "SizedRecipe": "clearhead.api.recipe_for",
    "Study": "clearhead.api.studying",
    "StudyResult": "clearhead.studies.comparing",
    "TextModel": "clearhead.api.text_model",
    "Trace": "clearhead.inspection.trace",
    "TrainConfig": "clearhead.config",
    "TrainedRun": "clearhead.api.trained_run",
    "TrainingPlan": "clearhead.training.plan",
    "attribution": "clearhead.inspection.lens",
    "build_model": "clearhead.api.building",
    "calibrate": "clearhead.api.calibrating",
    "count_parameters": "clearhead.models",
    "diff": "clearhead.api.doctor_diff",
    "edit": "clearhead.inspection.edit",
    "evaluate": "clearhead.api.evaluating",
    "examine": "clearhead.api.examining",
    "export": "clearhead.api.exporting",
    "get_corpus": "clearhead.api.corpora",
    "head_ablation": "clearhead.inspection.sweep",
    "head_kinds": "clearhead.inspection.heads",
    "import_model": "clearhead.api.loading",
    "load": "clearhead.api.loading",
    "load_model": "clearhead.interop.model_folder",
    "logit_lens": "clearhead.inspection.lens",
    "mean_of": "clearhead.inspection.trace",
    "patching": "clearhead.inspection.sweep",
    "plan": "clearhead.api.planning",
    "prepare": "clearhead.api.preparing",
    "preset": "clearhead.models",
    "recipe": "clearhead.api.recipes",
    "recipe_for": "clearhead.api.recipe_for",
    "rollout": "clearhead.inspection.lens",
    "save_model": "clearhead.interop.model_folder",
    "see": "clearhead.api.microscope",
    "selftest": "clearhead.api.self_test",
    "serve": "clearhead.api.serving",
    "shipped_models": "clearhead.api.locating",
    "study": "clearhead.api.studying",
    "sweep": "clearhead.inspection.sweep",
    "trace": "clearhead.inspection.trace",
    "train": "clearhead.api.training",
    "training_plan": "clearhead.api.training",
}
"""Each public name and its module. A module is imported when its name is first used, so that
`import clearhead` and the help of every command are instant. `__init__.pyi` lists the same names
for type checkers; a test compares the two files."""
_MOVED = dict.fromkeys(("add", "change", "multiply", "names", "put", "zero"), "edit")
"""Names of version 0.2 that still work in version 0.3, with a warning."""
_METHODS = {
    "attention": "", "classify": "", "continuations": "shakespeare-char",
    "fill_catalogue": "tatoeba-en-zh", "generate": "shakespeare-char", "label_probabilities": "",
    "score": "shakespeare-char", "stream": "shakespeare-char", "token_scores": "shakespeare-char",
    "translate": "tatoeba-en-zh", "translations": "tatoeba-en-zh",
}  # fmt: skip
"""Methods of what `load` returns, and a shipped model that has each, if one has."""
__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name in _MOVED:
        import warnings

        new = f"{_MOVED[name]}.{name}"
        message = f"clearhead.{name} ends with version 0.4; write clearhead.{new}"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return getattr(__getattr__(_MOVED[name]), name)
    if name not in _HOMES:
        remedy = ""
        if name in _METHODS:
            model = repr(_METHODS[name]) if _METHODS[name] else "model"
            remedy = f"; it is a method of a model: clearhead.load({model}).{name}(…)"
        raise AttributeError(f"module 'clearhead' has no attribute {name!r}{remedy}")
    home = import_module(_HOMES[name])
    return home if name == "edit" else getattr(home, name)  # edit is a module itself


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

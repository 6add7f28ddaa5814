"""JoeyNMT, inside its own environment: `python -m benchmarks.peers.in_joeynmt train|translate`."""

# pyright: reportMissingImports=false

from pathlib import Path
from typing import Any

import torch
from joeynmt import builders, prediction, training
from joeynmt.config import load_config, parse_global_args
from joeynmt.helpers import make_model_dir
from joeynmt.tokenizers import BasicTokenizer, SentencePieceTokenizer

from benchmarks.peers.marks import Marks, of_a_translator
from benchmarks.peers.sentencepieces import MODEL, TOKENS, build_vocabulary

# What torch and sentencepiece have had and no longer have.
plateau = builders.ReduceLROnPlateau
builders.ReduceLROnPlateau = lambda **given: plateau(
    **{key: value for key, value in given.items() if key != "verbose"}
)
# The call restricts a tokenizer to its own vocabulary, which changes nothing here.
SentencePieceTokenizer.set_vocab = BasicTokenizer.set_vocab


def main() -> None:
    arguments = of_a_translator()
    torch.set_num_threads(1)
    settings = load_config(arguments.config)
    build_vocabulary(arguments.data, settings["data"]["src"]["voc_limit"])
    settings["model_dir"] = str(arguments.folder / "model")
    for split, name in (("train", "train"), ("dev", "val"), ("test", "test_2016_flickr")):
        settings["data"][split] = str(arguments.data / name)
    for side in ("src", "trg"):
        settings["data"][side]["voc_file"] = str(arguments.data / TOKENS)
        settings["data"][side]["tokenizer_cfg"]["model_file"] = str(arguments.data / MODEL)
    marks = Marks(arguments.folder, arguments.minutes)
    if arguments.action == "train":
        train(settings, marks)
    else:
        translate(settings, marks, arguments.minutes[0])


def train(settings: dict[str, Any], marks: Marks) -> None:
    make_model_dir(Path(settings["model_dir"]), overwrite=True)
    step = training.TrainManager._train_step

    def watched(self: Any, batch: Any) -> Any:
        minutes = marks.due()
        if minutes is not None:
            torch.save(self.model.state_dict(), marks.weights(minutes))
            marks.note(
                minutes,
                steps=self.stats.steps,
                tokens=self.stats.total_tokens,
                parameters=sum(p.numel() for p in self.model.parameters()),
            )
            if marks.is_last(minutes):
                raise KeyboardInterrupt  # which it takes for the end of training
        return step(self, batch)

    training.TrainManager._train_step = watched
    training.train(rank=0, world_size=None, cfg=settings, skip_test=True)


def translate(settings: dict[str, Any], marks: Marks, minutes: float) -> None:
    weights = torch.load(marks.weights(minutes), weights_only=True)
    checkpoint = marks.folder / "model" / "point.ckpt"
    torch.save({"model_state": weights}, checkpoint)
    settings["testing"]["load_model"] = str(checkpoint)
    arguments = parse_global_args(settings, rank=0, mode="test")
    model, _, _, test = prediction.prepare(arguments, rank=0, mode="test")
    _, _, lines, _, _, _ = prediction.predict(
        model=model,
        data=test,
        device=arguments.device,
        n_gpu=0,
        normalization=arguments.train.normalization,
        args=arguments.test,
        autocast=arguments.autocast,
    )
    text = "".join(line + "\n" for line in lines)
    marks.weights(minutes).with_suffix(".txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

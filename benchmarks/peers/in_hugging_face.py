"""Hugging Face's Seq2SeqTrainer, inside its own environment:
`python -m benchmarks.peers.in_hugging_face train|translate`."""

import math
import statistics
import time
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    DataCollatorForSeq2Seq,
    GenerationConfig,
    MarianConfig,
    MarianMTModel,
    PreTrainedTokenizerFast,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainerCallback,
)

from benchmarks.peers.marks import Marks, of_a_translator

PAD, EOS = "<pad>", "</s>"
TRIAL_STEPS = 40
MANY_STEPS = 100_000
MAX_LENGTH = 100


def main() -> None:
    arguments = of_a_translator()
    torch.set_num_threads(1)
    settings = tomllib.loads(arguments.config.read_text(encoding="utf-8"))
    tokenizer = build_tokenizer(arguments.data, settings["vocab_size"])
    marks = Marks(arguments.folder, arguments.minutes)
    if arguments.action == "train":
        train(settings, tokenizer, arguments.data, marks)
    else:
        translate(settings, tokenizer, arguments.data, marks, arguments.minutes[0])


def build_tokenizer(data: Path, size: int) -> PreTrainedTokenizerFast:
    """Byte-level BPE, one for both sides."""
    file = data / "tokenizer.json"
    if not file.exists():
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        made.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=size, special_tokens=[PAD, EOS], initial_alphabet=alphabet
        )
        made.train([str(data / "train.de"), str(data / "train.en")], trainer)
        ends = [(EOS, made.token_to_id(EOS))]
        made.post_processor = processors.TemplateProcessing(single=f"$A {EOS}", special_tokens=ends)
        made.save(str(file))
    return PreTrainedTokenizerFast(tokenizer_file=str(file), pad_token=PAD, eos_token=EOS)


def build(settings: dict[str, Any], tokenizer: PreTrainedTokenizerFast) -> MarianMTModel:
    torch.manual_seed(settings["training"]["seed"])
    ids: Any = tokenizer
    pad, eos = ids.pad_token_id, ids.eos_token_id
    model = MarianMTModel(
        MarianConfig(
            vocab_size=len(tokenizer),
            pad_token_id=pad,
            eos_token_id=eos,
            decoder_start_token_id=pad,
            forced_eos_token_id=eos,
            **settings["model"],
        )
    )
    model.generation_config = GenerationConfig(
        num_beams=settings["beam"],
        max_length=MAX_LENGTH,
        pad_token_id=pad,
        eos_token_id=eos,
        decoder_start_token_id=pad,
    )
    return model


class Watch(TrainerCallback):
    """Keeps the weights at the marks, and stops at the last one."""

    def __init__(self, marks: Marks, model: MarianMTModel) -> None:
        self.marks, self.model = marks, model

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        minutes = self.marks.due()
        if minutes is not None:
            self.keep(minutes, state.global_step)
            control.should_training_stop = self.marks.is_last(minutes)

    def keep(self, minutes: float, steps: int) -> None:
        torch.save(self.model.state_dict(), self.marks.weights(minutes))
        parameters = sum(p.numel() for p in self.model.parameters())
        self.marks.note(minutes, steps=steps, parameters=parameters)


class Timer(TrainerCallback):
    """The processor time of a step, in the middle of all."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        self.times.append(time.process_time())

    @property
    def seconds_of_a_step(self) -> float:
        return statistics.median(after - before for before, after in pairwise(self.times))


def train(
    settings: dict[str, Any], tokenizer: PreTrainedTokenizerFast, data: Path, marks: Marks
) -> None:
    sources, targets = read(data / "train.de"), read(data / "train.en")
    rows = [
        {"input_ids": source, "labels": target}
        for source, target in zip(tokenizer(sources)["input_ids"], tokenizer(targets)["input_ids"])
    ]

    def trainer(model: MarianMTModel, max_steps: int) -> Seq2SeqTrainer:
        return Seq2SeqTrainer(
            model=model,
            args=Seq2SeqTrainingArguments(
                output_dir=str(marks.folder / "trainer"),
                max_steps=max_steps,
                use_cpu=True,
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                logging_steps=100,
                **settings["training"],
            ),
            train_dataset=rows,  # pyright: ignore[reportArgumentType]
            data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
            processing_class=tokenizer,
        )

    # A schedule that falls to its end needs the number of steps that the time allows; to any other
    # the number means nothing, and the last mark ends the training. The longest sentences come
    # first when they are grouped by length, so that the first steps are slower than the rest.
    steps = MANY_STEPS
    if settings["training"].get("lr_scheduler_type") != "inverse_sqrt":
        timer = Timer()
        first = trainer(build(settings, tokenizer), TRIAL_STEPS)
        first.add_callback(timer)
        first.train()
        steps = math.ceil(60 * marks.minutes[-1] / timer.seconds_of_a_step)
    print(f"transformers {transformers.__version__}: {steps} steps at most")
    model = build(settings, tokenizer)
    watch = Watch(marks, model)
    second = trainer(model, steps)
    second.add_callback(watch)
    marks.start()
    second.train()
    if not marks.weights(marks.minutes[-1]).exists():  # it was faster than its first steps
        watch.keep(marks.minutes[-1], steps)


def translate(
    settings: dict[str, Any],
    tokenizer: PreTrainedTokenizerFast,
    data: Path,
    marks: Marks,
    minutes: float,
) -> None:
    model = build(settings, tokenizer)
    model.load_state_dict(torch.load(marks.weights(minutes), weights_only=True))
    model.eval()
    sources = read(data / "test_2016_flickr.de")
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    found = [""] * len(sources)
    for start in range(0, len(order), 50):
        chosen = order[start : start + 50]
        batch = tokenizer(
            [sources[i] for i in chosen],
            return_tensors="pt",
            padding=True,
            return_token_type_ids=False,
        )
        with torch.inference_mode():
            written = cast(Any, model).generate(**batch)
        texts = tokenizer.batch_decode(written, skip_special_tokens=True)
        for i, text in zip(chosen, texts):
            found[i] = text.strip()
    lines = "".join(line + "\n" for line in found)
    marks.weights(minutes).with_suffix(".txt").write_text(lines, encoding="utf-8")


def read(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").split("\n")[:-1]


if __name__ == "__main__":
    main()

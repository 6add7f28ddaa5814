"""The arms of `adaptation` that Hugging Face's Seq2SeqTrainer trains: the same weights, exported,
and the same pairs, for the same minutes of the processor.

`adaptation` starts it as a process of its own: the steps that are timed to size the run, and the
starting up of torch, count as little as ours do.
"""

import argparse
import json
import random
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

from benchmarks.peers.in_hugging_face import TRIAL_STEPS, Timer

MAX_TOKENS = 128
"""As data.max_tokens: longer pairs are left out."""
Row = dict[str, list[int]]


def rows_of(tokenizer: Any, folder: Path) -> list[Row]:
    sides = [
        tokenizer((folder / f"train.{side}").read_text(encoding="utf-8").split("\n")[:-1])
        for side in ("source", "target")
    ]
    rows = [
        {"input_ids": source, "labels": target}
        for source, target in zip(*(side["input_ids"] for side in sides))
    ]
    return [row for row in rows if max(map(len, row.values())) <= MAX_TOKENS]


def drawn(new: list[Row], first: list[Row], n: int, share: float, seed: int) -> list[Row]:
    """The rows of a whole training, pass after pass over each text."""
    draw = random.Random(seed)
    rows: list[Row] = []
    for text, wanted in ((new, n - round(n * share)), (first, round(n * share))):
        passes = -(-wanted // len(text)) if wanted else 0
        taken = [row for _ in range(passes) for row in draw.sample(text, len(text))]
        rows += taken[:wanted]
    draw.shuffle(rows)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True, help="an exported folder")
    parser.add_argument("--new", type=Path, required=True)
    parser.add_argument("--first", type=Path, required=True)
    parser.add_argument("--share", type=float, default=0.0, help="of rows of the first text")
    parser.add_argument("--settings", required=True, help="JSON: of our recipe")
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    settings = json.loads(arguments.settings)
    tokenizer: Any = AutoTokenizer.from_pretrained(arguments.model)
    new, first = rows_of(tokenizer, arguments.new), rows_of(tokenizer, arguments.first)
    sample = drawn(new, first, 1000, arguments.share, arguments.seed)
    per_batch = round(settings["batch_tokens"] / statistics.mean(len(r["labels"]) for r in sample))

    def train(steps: int) -> tuple[Any, Timer]:
        torch.manual_seed(arguments.seed)
        dropout = {"dropout": settings["p_dropout"], "attention_dropout": 0.0}
        model: Any = AutoModelForSeq2SeqLM.from_pretrained(
            arguments.model, dtype=torch.float32, **dropout
        )
        rows = drawn(new, first, steps * per_batch, arguments.share, arguments.seed)
        timer = Timer()
        trainer = Seq2SeqTrainer(
            model=model,
            args=Seq2SeqTrainingArguments(
                output_dir=str(arguments.out / "trainer"),
                max_steps=steps,
                use_cpu=True,
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                logging_steps=100,
                seed=arguments.seed,
                per_device_train_batch_size=per_batch,
                train_sampling_strategy="group_by_length",
                learning_rate=settings["lr"],
                lr_scheduler_type="cosine_with_min_lr",
                lr_scheduler_kwargs={"min_lr_rate": settings["final_lr"]},
                warmup_steps=min(settings["warmup_steps"], steps),
                adam_beta1=settings["beta1"],
                adam_beta2=settings["beta2"],
                weight_decay=settings["weight_decay"],
                max_grad_norm=settings["clip_norm"],
                label_smoothing_factor=settings["label_smoothing"],
            ),
            train_dataset=rows,  # pyright: ignore[reportArgumentType]
            data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
            processing_class=tokenizer,
            callbacks=[timer],
        )
        trainer.train()
        return model, timer

    _, timer = train(TRIAL_STEPS)
    steps = max(1, round(60 * arguments.minutes / timer.seconds_of_a_step))
    started = time.process_time()
    model, _ = train(steps)
    minutes = (time.process_time() - started) / 60
    model.save_pretrained(arguments.out / "model")
    tokenizer.save_pretrained(arguments.out / "model")
    facts = {"steps": steps, "sentences_of_a_step": per_batch, "core_minutes": round(minutes, 2)}
    (arguments.out / "facts.json").write_text(json.dumps(facts), encoding="utf-8")


if __name__ == "__main__":
    main()

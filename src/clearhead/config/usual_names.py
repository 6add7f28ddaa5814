"""Finds which key of a recipe is meant when somebody writes the name that other software uses."""

from collections.abc import Sequence

from clearhead.errors import closest, nearest, setting

_GROUPS = {
    "train.lr": "learning_rate max_lr peak_lr base_lr init_lr",
    "train.steps": "max_steps num_steps n_steps max_iters iterations iters num_train_steps updates",
    "train.epochs": "num_epochs n_epochs max_epochs num_train_epochs epoch",
    "train.seed": "random_seed manual_seed random_state",
    "train.optimizer": "optim optimiser",
    "train.schedule": "scheduler lr_scheduler lr_scheduler_type lr_schedule decay_lr",
    "train.warmup_steps": "warmup warmup_iters num_warmup_steps warmup_updates warmup_ratio",
    "train.final_lr": "min_lr",
    "train.clip_norm": "grad_clip clip_grad gradient_clip_val gradient_clipping max_grad_norm",
    "train.micro_batches": "gradient_accumulation_steps accumulate_grad_batches grad_accum",
    "train.beta1": "adam_beta1",
    "train.beta2": "adam_beta2",
    "train.precision": "fp16 bf16 amp mixed_precision dtype half",
    "train.recompute": "gradient_checkpointing activation_checkpointing",
    "train.validate_every": "eval_steps eval_every eval_interval val_check_interval",
    "train.save_every": "save_steps save_interval checkpoint_every checkpoint_interval",
    "train.log_every": "logging_steps log_steps log_interval",
    "train.keep": "save_total_limit keep_checkpoints",
    "train.patience": "early_stopping early_stopping_patience",
    "train.label_smoothing": "label_smoothing_factor smoothing",
    "train.workers": "num_workers dataloader_num_workers n_workers",
    "train.start_from": "init_from pretrained checkpoint resume_from_checkpoint",
    "batches.batch_size": "per_device_train_batch_size train_batch_size bs micro_batch_size",
    "batches.batch_tokens": "max_tokens_per_batch tokens_per_batch",
    "batches.p_mask": "mlm_probability mask_prob",
    "model.family": "model_type arch architecture",
    "model.d_model": "hidden_size hidden_dim n_embd embed_dim embedding_dim emb_dim dim width "
    "model_dim embedding_size",
    "model.n_layers": "num_layers n_layer layers depth num_hidden_layers n_blocks num_blocks "
    "encoder_layers",
    "model.n_decoder_layers": "num_decoder_layers decoder_layers",
    "model.n_heads": "num_heads n_head heads nhead num_attention_heads attention_heads",
    "model.n_kv_heads": "num_kv_heads num_key_value_heads",
    "model.d_head": "head_dim",
    "model.d_ff": "ffn_dim ff_dim intermediate_size dim_feedforward d_inner n_inner ffn_size d_hid",
    "model.feed_forward": "activation hidden_act act_fn activation_function",
    "model.p_dropout": "dropout dropout_rate dropout_prob hidden_dropout_prob drop_rate dropout_p "
    "p_drop",
    "model.p_attention_dropout": "attention_dropout attn_dropout attn_pdrop",
    "model.max_length": "block_size seq_len seq_length max_seq_len max_seq_length context_length "
    "max_position_embeddings n_positions n_ctx context_size max_len",
    "model.norm_eps": "layer_norm_eps layer_norm_epsilon rms_norm_eps",
    "model.position_base": "rope_theta rope_base",
    "model.tie_output": "tie_weights tie_word_embeddings tie_embeddings",
    "data.vocab_size": "n_vocab vocabulary_size bpe_size num_merges",
    "data.held_out": "val_split valid_split validation_split val_ratio test_size",
    "data.tokenizer": "tokenizer_type",
}
USUAL = {name: key for key, names in _GROUPS.items() for name in names.split()}
"""The names of settings in other software, and the keys that mean the same here."""
_OPTIONS = {
    "max_new": "max_tokens max_new_tokens max_length max_len max_gen_len num_tokens max_output",
    "beam": "num_beams beams n_beams beam_size beam_width width",
    "n_best": "n nbest num_return_sequences num_hypotheses best_of",
    "top_k": "k topk sampling_topk",
    "top_p": "p topp nucleus sampling_topp",
    "temperature": "temp t sampling_temperature",
    "repetition_penalty": "penalty rep_penalty frequency_penalty",
    "batch": "batch_size max_batch_size bs",
    "only": "choices guided_choice",
    "seed": "random_seed manual_seed random_state",
}
OPTIONS = {name: option for option, names in _OPTIONS.items() for name in names.split()}
"""The names of options of decoding in other software, and the options that mean the same here."""
_DEVICE = (
    "training computes on the accelerator that torch finds, otherwise on the processor "
    "(CUDA_VISIBLE_DEVICES chooses among several)"
)
_FOLDER = f"give the folder of the run: {setting('folder', ...)}"
WITHOUT_KEY = {
    **dict.fromkeys(("device", "gpu", "gpus", "cuda", "accelerator"), _DEVICE),
    **dict.fromkeys(("out", "output", "output_dir", "save_dir", "out_dir", "run_dir"), _FOLDER),
}
"""Names of settings in other software that are not keys here, and what to do instead."""
LIKE_ENOUGH = 0.75
"""How alike a mistyped word and a key must be, after the dot: words of the same length with one
wrong letter in four are alike enough."""


def remedy_for_key(word: str, keys: Sequence[str], *, before: str = "") -> str | None:
    """Say which of the keys (`train.lr`) a wrong one probably means; None: impossible to tell.
    `before` is put before each key, for example the dashes of the command line."""
    name = word.rpartition(".")[2].lower().replace("-", "_")
    if name in WITHOUT_KEY:
        return WITHOUT_KEY[name]
    key = key_meant(word, keys)
    return None if key is None else f"did you mean {before + key!r}?"


def key_meant(word: str, keys: Sequence[str]) -> str | None:
    """Return the key (`train.lr`) that a wrong one probably means; None: impossible to tell."""
    section, _, name = word.rpartition(".")
    name = name.lower().replace("-", "_")
    key = _of_name(name, section, keys)
    if key is None and USUAL.get(name) in keys:
        key = USUAL[name]
    return _closest(name, section, keys) if key is None else key


def remedy_for_option(word: str, names: Sequence[str]) -> str:
    """Say which of the options of a function a wrong one probably means, or all of them."""
    meant = OPTIONS.get(word.lower().replace("-", "_"))
    return f"did you mean {meant!r}?" if meant in names else nearest(word, names)


def _of_name(name: str, section: str, keys: Sequence[str]) -> str | None:
    """Return a key of this name: in this section, or else in `train`, or in any other."""
    found = [key for key in keys if key.partition(".")[2] == name]
    likely = (f"{section}.{name}", f"train.{name}", *found)
    return next((key for key in likely if key in found), None)


def _closest(name: str, section: str, keys: Sequence[str]) -> str | None:
    own = [key.partition(".")[2] for key in keys if key.startswith(f"{section}.")]
    every = [key.partition(".")[2] for key in keys]
    for names in (own, [*every, *USUAL]):
        if (best := closest(name, names, LIKE_ENOUGH)) is not None:
            key = _of_name(best, section, keys) or USUAL[best]
            return key if key in keys else None
    return None

"""Shows where a model looked when it read a text: the attention of its tokens."""

from collections.abc import Sequence
from typing import get_args

import torch

from clearhead.config import BeamConfig
from clearhead.config.decode import TooLong
from clearhead.decoding import Output, beam_search
from clearhead.decoding.cached import evaluating
from clearhead.decoding.opening import Opened
from clearhead.errors import InputError, nearest, type_of
from clearhead.inspection.attention import AttentionMap, cross_attention, self_attention
from clearhead.inspection.decode_for_page import encoder_ids, subject_of
from clearhead.inspection.look import Text, look
from clearhead.inspection.page import page
from clearhead.models import CausalLM, Classifier, MaskedLM, Seq2Seq


def text_attention(
    opened: Opened,
    text: str,
    target: str | Sequence[int] | None,
    *,
    name: str,
    layer: int | None,
    head: int | None,
    too_long: TooLong,
) -> AttentionMap:
    """Compute what `TextModel.attention` returns. The page shows the model as `name`."""
    if too_long not in get_args(TooLong):
        remedy = nearest(str(too_long), get_args(TooLong))
        raise InputError(f"too_long={too_long!r:.60} is not a valid choice; {remedy}")
    model, codec = opened.model, opened.codec
    if not text.strip():
        raise InputError("the text is empty; give some text to look at")
    if not isinstance(model, Seq2Seq):
        if target is not None:
            raise InputError("only an encoder-decoder has a target; leave it out")
        if isinstance(model, MaskedLM | Classifier):
            ids = encoder_ids(subject_of(opened, name), text)
        else:
            (ids,) = codec.encode_prompts([text])
        ids = codec.fit_prompt(ids, model.config.max_length, too_long=too_long)
        attention_map = self_attention(model, ids, tokenizer=opened.source, layer=layer, head=head)
        return _with_page(attention_map, opened, name, _of_itself(model, ids))
    (whole,) = codec.encode_sources([text])
    source = codec.fit_source(whole, model.config.max_length, too_long=too_long)
    if target is None:
        output = beam_search(model, [source], codec.decode_config(256), BeamConfig())[0][0]
    else:
        if not isinstance(target, str) and not _are_ids(target):
            raise InputError(
                f"target={target!r:.60} is {type_of(target)}; give the text of a "
                "translation, or its token ids"
            )
        is_text = isinstance(target, str)
        tokens = codec.encode_targets([target], [text])[0] if is_text else list(target)
        output = Output(tokens=tokens, log_probs=[], score=0.0, stop="end")
    start_id = opened.ids.decoder_start
    attention_map = cross_attention(
        model,
        source,
        output,
        tokenizers=(opened.source, opened.target),
        start_id=start_id,
        layer=layer,
        head=head,
    )
    if start_id is None or not output.tokens:
        return attention_map
    fed = [start_id, *output.tokens[:-1]]
    return _with_page(attention_map, opened, name, Text(list(source), fed, output.tokens))


def _of_itself(model: CausalLM | MaskedLM | Classifier, ids: list[int]) -> Text | None:
    if isinstance(model, Classifier):  # which has a page of its own
        return None
    if isinstance(model, CausalLM):
        return Text(None, ids[:-1], ids[1:], n_given=len(ids) - 1) if len(ids) > 1 else None
    tokens = torch.tensor([ids], device=model.tokens.weight.device)
    with torch.inference_mode(), evaluating(model.modules()):
        return Text(ids, None, model(tokens, real="all")[0].argmax(dim=-1).tolist())


def _with_page(
    attention_map: AttentionMap, opened: Opened, name: str, text: Text | None
) -> AttentionMap:
    """Return the map with its page, which opens at the map's own layer and head."""
    if text is None:
        return attention_map

    def html() -> str:
        document = look(subject_of(opened, name), text)
        kind = list(document["attention"])[-1]
        document["suggested"][kind] = [
            attention_map.layer,
            "mean" if attention_map.head is None else attention_map.head,
        ]
        return page(document)

    return attention_map._replace(html=html)


def _are_ids(value: object) -> bool:
    if isinstance(value, bytes) or not isinstance(value, Sequence) or not value:
        return False
    return all(isinstance(item, int) and not isinstance(item, bool) for item in value)

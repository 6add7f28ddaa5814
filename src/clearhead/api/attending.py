"""Where a model looked, from a text: the attention of its tokens."""

from collections.abc import Sequence

from clearhead.config import BeamConfig
from clearhead.config.decode import TooLong
from clearhead.decoding import Output, beam_search
from clearhead.decoding.opening import Opened
from clearhead.errors import InputError
from clearhead.inspection.attention import AttentionMap, cross_attention, self_attention
from clearhead.models import Seq2Seq


def text_attention(
    opened: Opened,
    text: str,
    target: str | Sequence[int] | None,
    *,
    layer: int | None,
    head: int | None,
    too_long: TooLong,
) -> AttentionMap:
    """What `TextModel.attention` returns."""
    model, codec = opened.model, opened.codec
    if not isinstance(model, Seq2Seq):
        if target is not None:
            raise InputError("only an encoder-decoder has a target; leave it out")
        (ids,) = codec.encode_prompts([text])
        if not ids:
            raise InputError("the text is empty, so nothing can be looked at; give some text")
        return self_attention(model, ids, tokenizer=opened.source, layer=layer, head=head)
    (whole,) = codec.encode_sources([text])
    source = codec.fit_source(whole, model.config.max_length, too_long=too_long)
    if target is None:
        output = beam_search(model, [source], codec.decode_config(256), BeamConfig())[0][0]
    else:
        given = isinstance(target, str)
        tokens = codec.encode_targets([target])[0] if given else list(target)
        output = Output(tokens=tokens, log_probs=[], score=0.0, stop="end")
    return cross_attention(
        model,
        source,
        output,
        tokenizers=(opened.source, opened.target),
        start_id=opened.ids.decoder_start,
        layer=layer,
        head=head,
    )

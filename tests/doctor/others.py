"""Other people's Transformers, tiny and random, as they come."""

import torch
import transformers
from torch import nn

from clearhead.doctor import Calls, Generated

_SIZES = {"vocab_size": 53, "attn_implementation": "eager"}
_DECODER = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3}
_PAIR = {
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 40,
    "max_position_embeddings": 40,
    "scale_embedding": True,
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
    "pad_token_id": 0,
    "decoder_start_token_id": 2,
    "eos_token_id": 3,
    "bos_token_id": 2,
}


def gpt2():
    config = transformers.GPT2Config(
        n_embd=24, n_layer=2, n_head=3, n_positions=40, bos_token_id=1, eos_token_id=2, **_SIZES
    )
    return transformers.GPT2LMHeadModel(config)


def llama():
    config = transformers.LlamaConfig(
        num_key_value_heads=1,
        head_dim=8,
        intermediate_size=40,
        max_position_embeddings=40,
        **_DECODER,
        **_SIZES,
    )
    return transformers.LlamaForCausalLM(config)


def bert():
    config = transformers.BertConfig(
        intermediate_size=40, max_position_embeddings=40, **_DECODER, **_SIZES
    )
    return transformers.BertForMaskedLM(config)


def t5():
    config = transformers.T5Config(
        d_model=24,
        d_kv=8,
        d_ff=40,
        num_layers=2,
        num_heads=3,
        decoder_start_token_id=0,
        **_SIZES,
    )
    return transformers.T5ForConditionalGeneration(config)


def marian():
    return transformers.MarianMTModel(
        transformers.MarianConfig(forced_eos_token_id=None, **_PAIR, **_SIZES)
    )


def pegasus():
    return transformers.PegasusForConditionalGeneration(
        transformers.PegasusConfig(forced_eos_token_id=None, **_PAIR, **_SIZES)
    )


def m2m100():
    return transformers.M2M100ForConditionalGeneration(
        transformers.M2M100Config(**{**_PAIR, "pad_token_id": 1}, **_SIZES)
    )


class TorchTransformer(nn.Module):
    """nn.Transformer, with what everybody must put around it."""

    def __init__(self, vocab=53, width=24, limit=40):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.places = nn.Embedding(limit, width)
        self.transformer = nn.Transformer(width, 3, 2, 2, 40, batch_first=True)
        self.head = nn.Linear(width, vocab)

    def embed(self, tokens):
        return self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))

    def forward(self, source, target, src_key_padding_mask=None, tgt_key_padding_mask=None):
        length = target.shape[1]
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        states = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=future,
            src_key_padding_mask=src_key_padding_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=src_key_padding_mask,
        )
        return self.head(states)


def x_transformers_decoder():
    from x_transformers import Decoder, TransformerWrapper

    return TransformerWrapper(
        num_tokens=53, max_seq_len=40, attn_layers=Decoder(dim=24, depth=2, heads=3)
    )


def x_transformers_pair():
    from x_transformers import XTransformer

    return XTransformer(
        dim=24,
        enc_num_tokens=53,
        enc_depth=2,
        enc_heads=3,
        enc_max_seq_len=40,
        dec_num_tokens=53,
        dec_depth=2,
        dec_heads=3,
        dec_max_seq_len=40,
    )


def _pair_logits(model, inputs):
    memory = model.encoder(inputs.source, mask=inputs.source_real, return_embeddings=True)
    return model.decoder.net(
        inputs.tokens, context=memory, context_mask=inputs.source_real, mask=inputs.real
    )


X_PAIR_CALLS = Calls(logits=_pair_logits, masks=frozenset({"real", "source_real"}))


def x_transformers_beams():
    """Its wrapper with a cached beam search."""
    from x_transformers import AutoregressiveWrapper

    return AutoregressiveWrapper(x_transformers_decoder())


def _beams(model, inputs, n_new, /, beams=1):
    tokens, scores = model.beam_search(
        inputs.tokens, n_new, beams=beams, return_beams_and_scores=True, cache_kv=True
    )
    # (beams, batch, new), best first: the best of the one prompt.
    return Generated(inputs.tokens, tokens[0], scores[0])


X_BEAM_CALLS = Calls(
    logits=lambda model, inputs: model.net(inputs.tokens),
    generate=_beams,
    settings=frozenset({"beams"}),
)

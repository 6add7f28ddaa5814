"""Other people's Transformers, as the doctor meets them: where each is published, the commit that
was examined, and the few lines that build it small. Nothing of them is kept here: their files are
expected in the folder that CLEARHEAD_WILD names, one checkout per repository (OWNER+NAME)."""

import ast
import importlib
import importlib.util
import json
import os
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from clearhead.doctor.patient import ModelKind

FOLDER = Path(os.environ.get("CLEARHEAD_WILD", "wild"))


@dataclass(frozen=True)
class Wild:
    name: str
    repository: str
    """OWNER/NAME on GitHub; `pip:NAME` for a package."""
    commit: str
    file: str
    kind: ModelKind
    build: Callable[[], nn.Module]

    @property
    def folder(self) -> Path:
        return FOLDER / self.repository.replace("/", "+")

    @property
    def here(self) -> bool:
        if self.repository.startswith("pip:"):
            return importlib.util.find_spec(self.repository[4:]) is not None
        return (self.folder / self.file).exists()


WILD: list[Wild] = []


def wild(name: str, repository: str, commit: str, file: str, kind: ModelKind):
    """The function below builds the model; it runs in a process of its own."""

    def register(build: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
        WILD.append(Wild(name, repository, commit, file, kind, build))
        return build

    return register


def module(repository: str, folder: str, name: str) -> Any:
    """Import from a folder of a repository, as if started there."""
    sys.path.insert(0, str(FOLDER / repository.replace("/", "+") / folder))
    return importlib.import_module(name)


def definitions(repository: str, file: str, change: Callable[[str], str] = str) -> Any:
    """The classes, functions, imports and plain constants of a script or a notebook: importing it
    would download data and train. Imports of packages that are not here are left out."""
    path = FOLDER / repository.replace("/", "+") / file
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells)
        text = "\n".join(line for line in text.splitlines() if not line.startswith(("%", "!")))
    found = types.ModuleType(f"wild_{path.stem}")
    sys.modules[found.__name__] = found
    for node in ast.parse(change(text)).body:
        if isinstance(node, ast.Expr | ast.For | ast.With | ast.If):
            continue
        try:
            exec(compile(ast.Module([node], []), str(path), "exec"), found.__dict__)
        except Exception:  # an import of a package, or a constant computed from data, is not here
            continue
    return found


@wild("nanoGPT", "karpathy/nanoGPT", "3adf61e", "model.py", "decoder")
def nano_gpt():
    m = module("karpathy/nanoGPT", "", "model")
    return m.GPT(m.GPTConfig(block_size=64, vocab_size=100, n_layer=2, n_head=4, n_embd=64))


@wild("nanoGPT, as for Shakespeare", "karpathy/nanoGPT", "3adf61e", "model.py", "decoder")
def nano_gpt_dropout():
    m = module("karpathy/nanoGPT", "", "model")
    sizes = {"block_size": 256, "vocab_size": 65, "n_layer": 6, "n_head": 6, "n_embd": 384}
    return m.GPT(m.GPTConfig(**sizes, dropout=0.2, bias=False))


@wild("minGPT", "karpathy/minGPT", "37baab7", "mingpt/model.py", "decoder")
def min_gpt():
    m = module("karpathy/minGPT", "", "mingpt.model")
    config = m.GPT.get_default_config()
    config.model_type, config.vocab_size, config.block_size = "gpt-nano", 100, 64
    return m.GPT(config)


@wild("llama2.c", "karpathy/llama2.c", "350e04f", "model.py", "decoder")
def llama2_c():
    m = module("karpathy/llama2.c", "", "model")
    sizes = {"dim": 64, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "vocab_size": 100}
    return m.Transformer(m.ModelArgs(**sizes, max_seq_len=64, dropout=0.1))


@wild("ng-video-lecture", "karpathy/ng-video-lecture", "5220142", "gpt.py", "decoder")
def lecture():
    m = definitions("karpathy/ng-video-lecture", "gpt.py")
    m.vocab_size, m.n_embd, m.n_head, m.n_layer, m.block_size = 65, 64, 4, 2, 64
    return m.GPTLanguageModel()


@wild(
    "happy-llm chapter 2",
    "datawhalechina/happy-llm",
    "f115ef3",
    "docs/chapter2/code/transformer.py",
    "encoder-decoder",
)
def happy_2():
    m = module("datawhalechina/happy-llm", "docs/chapter2/code", "transformer")
    return m.Transformer(m.ModelArgs(100, 10, 100, 0.1, 512, 1000, 1000, 2))


@wild(
    "happy-llm chapter 5",
    "datawhalechina/happy-llm",
    "f115ef3",
    "docs/chapter5/code/k_model.py",
    "decoder",
)
def happy_5():
    m = module("datawhalechina/happy-llm", "docs/chapter5/code", "k_model")
    sizes = {"dim": 64, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "vocab_size": 100}
    return m.Transformer(m.ModelConfig(**sizes, max_seq_len=64))


@wild(
    "hyunwoongko transformer",
    "hyunwoongko/transformer",
    "6328654",
    "models/model/transformer.py",
    "encoder-decoder",
)
def hyunwoongko():
    return _hyunwoongko(100, 100)


@wild(
    "hyunwoongko transformer, larger target vocabulary",
    "hyunwoongko/transformer",
    "6328654",
    "models/model/transformer.py",
    "encoder-decoder",
)
def hyunwoongko_two():
    return _hyunwoongko(100, 120)


def _hyunwoongko(source: int, target: int):
    m = module("hyunwoongko/transformer", "", "models.model.transformer")
    return m.Transformer(
        src_pad_idx=1,
        trg_pad_idx=1,
        trg_sos_idx=2,
        enc_voc_size=source,
        dec_voc_size=target,
        d_model=64,
        n_head=4,
        max_len=64,
        ffn_hidden=128,
        n_layers=2,
        drop_prob=0.1,
        device="cpu",
    )


_ALADDIN = "ML/Pytorch/more_advanced/transformer_from_scratch"


@wild(
    "aladdinpersson transformer_from_scratch",
    "aladdinpersson/Machine-Learning-Collection",
    "558557c",
    f"{_ALADDIN}/transformer_from_scratch.py",
    "encoder-decoder",
)
def aladdin():
    m = module("aladdinpersson/Machine-Learning-Collection", _ALADDIN, "transformer_from_scratch")
    return m.Transformer(
        100, 100, 0, 0, embed_size=64, num_layers=2, heads=4, dropout=0.1, max_length=64
    )


_BENTREVETT = "legacy/6 - Attention is All You Need.ipynb"


@wild(
    "bentrevett notebook 6",
    "bentrevett/pytorch-seq2seq",
    "b3cd54c",
    _BENTREVETT,
    "encoder-decoder",
)
def bentrevett():
    m = definitions("bentrevett/pytorch-seq2seq", _BENTREVETT)
    encoder = m.Encoder(100, 64, 2, 4, 128, 0.1, "cpu")
    decoder = m.Decoder(100, 64, 2, 4, 128, 0.1, "cpu")
    return m.Seq2Seq(encoder, decoder, 1, 1, "cpu")


@wild(
    "jadore801120 attention-is-all-you-need",
    "jadore801120/attention-is-all-you-need-pytorch",
    "132907d",
    "transformer/Models.py",
    "encoder-decoder",
)
def jadore():
    m = module("jadore801120/attention-is-all-you-need-pytorch", "", "transformer.Models")
    sizes = {"d_word_vec": 64, "d_model": 64, "d_inner": 128, "d_k": 16, "d_v": 16}
    return m.Transformer(100, 100, 1, 1, n_layers=2, n_head=4, **sizes)


@wild(
    "graykode nlp-tutorial 5-1",
    "graykode/nlp-tutorial",
    "d05e31e",
    "5-1.Transformer/Transformer.py",
    "encoder-decoder",
)
def graykode():
    m = definitions("graykode/nlp-tutorial", "5-1.Transformer/Transformer.py")
    m.src_vocab_size = m.tgt_vocab_size = 50
    m.src_len = m.tgt_len = 5
    m.d_model, m.d_ff, m.d_k, m.d_v, m.n_layers, m.n_heads = 64, 128, 16, 16, 2, 4
    return m.Transformer()


@wild(
    "wmathor nlp-tutorial 5-1",
    "wmathor/nlp-tutorial",
    "a451108",
    "5-1.Transformer/Transformer_Torch.py",
    "encoder-decoder",
)
def wmathor():
    file = "5-1.Transformer/Transformer_Torch.py"
    m = definitions("wmathor/nlp-tutorial", file, lambda text: text.replace(".cuda()", ""))
    m.src_vocab_size = m.tgt_vocab_size = 50
    m.d_model, m.d_ff, m.d_k, m.d_v, m.n_layers, m.n_heads = 512, 2048, 64, 64, 2, 8
    return m.Transformer()


@wild(
    "hkproj pytorch-transformer",
    "hkproj/pytorch-transformer",
    "3beddd2",
    "model.py",
    "encoder-decoder",
)
def hkproj():
    m = module("hkproj/pytorch-transformer", "", "model")
    return m.build_transformer(100, 100, 64, 64, d_model=64, N=2, h=4, d_ff=128)


@wild("hkproj pytorch-llama", "hkproj/pytorch-llama", "067f8a3", "model.py", "decoder")
def hkproj_llama():
    m = module("hkproj/pytorch-llama", "", "model")
    sizes = {"dim": 64, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "vocab_size": 100}
    return m.Transformer(m.ModelArgs(**sizes, max_seq_len=64, max_batch_size=128, device="cpu"))


@wild(
    "SamLynnEvans Transformer",
    "SamLynnEvans/Transformer",
    "49e0180",
    "Models.py",
    "encoder-decoder",
)
def sam():
    model = module("SamLynnEvans/Transformer", "", "Models").Transformer(100, 100, 64, 2, 4, 0.1)
    for parameter in model.parameters():  # as its get_model does
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
    return model


@wild(
    "gordicaleksa original-transformer",
    "gordicaleksa/pytorch-original-transformer",
    "d5b29a4",
    "models/definitions/transformer_model.py",
    "encoder-decoder",
)
def gordic():
    name = "models.definitions.transformer_model"
    return module("gordicaleksa/pytorch-original-transformer", "", name).Transformer(
        64, 100, 100, 4, 2, 0.1
    )


@wild(
    "The Annotated Transformer",
    "harvardnlp/annotated-transformer",
    "debc9fd",
    "the_annotated_transformer.py",
    "encoder-decoder",
)
def annotated():
    m = definitions("harvardnlp/annotated-transformer", "the_annotated_transformer.py")
    return m.make_model(100, 100, N=2, d_model=64, d_ff=128, h=4)


@wild(
    "sgrvinod tutorial",
    "sgrvinod/a-PyTorch-Tutorial-to-Transformers",
    "3e09136",
    "model.py",
    "encoder-decoder",
)
def sgrvinod():
    repository = "sgrvinod/a-PyTorch-Tutorial-to-Transformers"
    positions = definitions(repository, "utils.py").get_positional_encoding(64, 64)
    sizes = {"d_model": 64, "n_heads": 4, "d_queries": 16, "d_values": 16, "d_inner": 128}
    return module(repository, "", "model").Transformer(100, positions, n_layers=2, **sizes)


@wild("d2l", "d2l-ai/d2l-en", "23d7a5a", "d2l/torch.py", "encoder-decoder")
def d2l():
    import torch

    m = definitions("d2l-ai/d2l-en", "d2l/torch.py")
    encoder = m.TransformerEncoder(100, 64, 128, 4, 2, 0.2)
    model = m.EncoderDecoder(encoder, _d2l_decoder(m)(100, 64, 128, 4, 2, 0.2))
    with torch.no_grad():  # its layers are lazy: they are built by the first call
        model(torch.ones(2, 5).long(), torch.ones(2, 4).long(), torch.tensor([3, 5]))
    return model


def _d2l_decoder(m: Any) -> Any:
    """The decoder is in the chapter alone, not in the package."""
    chapter = FOLDER / "d2l-ai+d2l-en/chapter_attention-mechanisms-and-transformers/transformer.md"
    text = chapter.read_text(encoding="utf-8")
    for block in text.split("```{.python .input}\n")[1:]:
        code = block.partition("```")[0]
        if code.startswith("%%tab pytorch\nclass TransformerDecoder"):
            exec(code.partition("\n")[2], m.__dict__)
    return m.TransformerDecoder


@wild(
    "codertimo BERT-pytorch",
    "codertimo/BERT-pytorch",
    "d10dc4f",
    "bert_pytorch/model/bert.py",
    "encoder",
)
def codertimo():
    m = module("codertimo/BERT-pytorch", "", "bert_pytorch.model")
    return m.BERTLM(m.BERT(100, hidden=64, n_layers=2, attn_heads=4), 100)


@wild(
    "dreamgonfly transformer-pytorch",
    "dreamgonfly/transformer-pytorch",
    "c31e163",
    "models.py",
    "encoder-decoder",
)
def dreamgonfly():
    # Its masks are bytes, which today's torch refuses: this one line is brought up to date.
    pad: Any = module("dreamgonfly/transformer-pytorch", "", "utils.pad")
    old = pad.subsequent_masking
    m: Any = importlib.import_module("models")
    for place in (pad, m):
        place.subsequent_masking = lambda x: old(x).bool()
    sizes = {"layers_count": 2, "d_model": 64, "heads_count": 4, "d_ff": 128}
    return m.build_model({"positional_encoding": True, "dropout_prob": 0.1, **sizes}, 100, 100)


@wild(
    "tunz transformer-pytorch",
    "tunz/transformer-pytorch",
    "e726667",
    "model/transformer.py",
    "encoder-decoder",
)
def tunz():
    utils = module("tunz/transformer-pytorch", "", "utils.utils")
    old = utils.create_trg_self_mask
    utils.create_trg_self_mask = lambda *a, **k: old(*a, **k).bool()  # bytes, as above
    m = importlib.import_module("model.transformer")
    sizes = {"n_layers": 2, "hidden_size": 64, "filter_size": 128}
    return m.Transformer(100, 100, src_pad_idx=0, trg_pad_idx=0, **sizes)


_RASBT = {
    "vocab_size": 100,
    "context_length": 64,
    "emb_dim": 64,
    "n_heads": 4,
    "n_layers": 2,
    "drop_rate": 0.1,
    "qkv_bias": False,
    "kv_window_size": 64,
    "n_kv_groups": 2,
    "latent_dim": 16,
    "sliding_window_size": 8,
    "sliding_window_stride": 2,
    "hidden_dim": 128,
    "num_experts": 4,
    "num_experts_per_tok": 2,
}


def _rasbt(name: str, file: str) -> None:
    path = f"ch04/{file}"

    @wild(f"rasbt {name}", "rasbt/LLMs-from-scratch", "28c65cd", path, "decoder")
    def build():
        return definitions("rasbt/LLMs-from-scratch", path).GPTModel(_RASBT)


_rasbt("GPT", "01_main-chapter-code/gpt.py")
_rasbt("KV cache", "03_kv-cache/gpt_with_kv_cache.py")
_rasbt("KV cache, optimized", "03_kv-cache/gpt_with_kv_cache_optimized.py")
_rasbt("grouped queries", "04_gqa/gpt_with_kv_gqa.py")
_rasbt("latent attention", "05_mla/gpt_with_kv_mla.py")
_rasbt("sliding window", "06_swa/gpt_with_kv_swa.py")
_rasbt("mixture of experts", "07_moe/gpt_with_kv_moe.py")


@wild("former", "pbloem/former", "ad9cc70", "former/transformers.py", "decoder")
def former():
    m = module("pbloem/former", "", "former")
    return m.GTransformer(emb=64, heads=4, depth=2, seq_length=64, num_tokens=100)


@wild("affjljoo3581 GPT2", "affjljoo3581/GPT2", "7b15966", "src/gpt2/modeling", "decoder")
def affjljoo():
    m = module("affjljoo3581/GPT2", "src", "gpt2.modeling")
    sizes = {"layers": 2, "words": 100, "seq_len": 64, "heads": 4, "dims": 64}
    return m.Transformer(pad_idx=0, bidirectional=False, **sizes)


@wild("graykode gpt-2-Pytorch", "graykode/gpt-2-Pytorch", "401078f", "GPT2/model.py", "decoder")
def graykode_gpt2():
    config = module("graykode/gpt-2-Pytorch", "", "GPT2.config").GPT2Config
    m = importlib.import_module("GPT2.model")
    sizes = {"n_positions": 64, "n_ctx": 64, "n_embd": 64, "n_layer": 2, "n_head": 4}
    return m.GPT2LMHeadModel(config(100, **sizes))


@wild("minimind", "jingyaogong/minimind", "d65ef2c", "model/model_minimind.py", "decoder")
def minimind():
    return _minimind()


@wild(
    "minimind, mixture of experts",
    "jingyaogong/minimind",
    "d65ef2c",
    "model/model_minimind.py",
    "decoder",
)
def minimind_experts():
    return _minimind(use_moe=True)


def _minimind(**more: Any):
    m = module("jingyaogong/minimind", "", "model.model_minimind")
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 64}
    return m.MiniMindForCausalLM(m.MiniMindConfig(**sizes, **more))


@wild("x-transformers decoder", "pip:x_transformers", "2.31.10", "", "decoder")
def x_decoder():
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(dim=64, depth=2, heads=4)
    return TransformerWrapper(num_tokens=100, max_seq_len=64, attn_layers=layers)


@wild("x-transformers decoder, rotary", "pip:x_transformers", "2.31.10", "", "decoder")
def x_decoder_rotary():
    from x_transformers import Decoder, TransformerWrapper

    how = {"rotary_pos_emb": True, "attn_flash": True, "ff_glu": True, "use_rmsnorm": True}
    layers = Decoder(dim=64, depth=2, heads=4, **how)
    return TransformerWrapper(num_tokens=100, max_seq_len=64, attn_layers=layers)


@wild("x-transformers encoder", "pip:x_transformers", "2.31.10", "", "encoder")
def x_encoder():
    from x_transformers import Encoder, TransformerWrapper

    layers = Encoder(dim=64, depth=2, heads=4)
    return TransformerWrapper(num_tokens=100, max_seq_len=64, attn_layers=layers)


@wild("x-transformers XTransformer", "pip:x_transformers", "2.31.10", "", "encoder-decoder")
def x_pair():
    from x_transformers import XTransformer

    sides: dict[str, Any] = {
        f"{side}_{name}": value
        for side in ("enc", "dec")
        for name, value in (("num_tokens", 100), ("depth", 2), ("heads", 4), ("max_seq_len", 64))
    }
    return XTransformer(dim=64, **sides)


@wild("Hugging Face FSMT", "pip:transformers", "5.22.2", "", "encoder-decoder")
def fsmt():
    import transformers

    sizes: dict[str, Any] = {"src_vocab_size": 100, "tgt_vocab_size": 100, "d_model": 64}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": 2, f"{side}_attention_heads": 4, f"{side}_ffn_dim": 128}
    config = transformers.FSMTConfig(langs=["en", "de"], max_position_embeddings=64, **sizes)
    return transformers.FSMTForConditionalGeneration(config)


@wild("Hugging Face RoFormer", "pip:transformers", "5.22.2", "", "decoder")
def roformer():
    import transformers

    sizes: dict[str, Any] = {"vocab_size": 100, "hidden_size": 64, "embedding_size": 64}
    sizes |= {"num_attention_heads": 4, "intermediate_size": 128, "max_position_embeddings": 64}
    sizes["num_hidden_layers"] = 2
    config = transformers.RoFormerConfig(rotary_value=False, is_decoder=True, **sizes)
    return transformers.RoFormerForCausalLM(config)


def _founding(number: int, kind: ModelKind) -> None:
    folder = f"seed{number}"

    @wild(f"founding tutorial {number}", "tutorials", "-", f"{folder}/tutorial.py", kind)
    def build():
        return module("tutorials", folder, "check").build()


for _number, _kind in enumerate(
    ("encoder-decoder", "decoder", "encoder-decoder", "encoder-decoder", "encoder-decoder")
):
    _founding(_number, _kind)

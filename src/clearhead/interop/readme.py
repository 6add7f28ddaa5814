"""Writes a README into every exported folder, for people who have never heard of clearhead: what
the model is, and a few lines that run unchanged."""

from pathlib import Path
from typing import Literal

from clearhead.config import BeamConfig
from clearhead.interop.certificate import PARITY, Certificate
from clearhead.interop.model_folder import Description
from clearhead.interop.tokenizer_file import has_tokenizer

README = "README.md"
Library = Literal["huggingface", "ctranslate2", "onnx"]

JOINED = "decoder on pairs"
"""The name, besides those of the families, of a decoder that reads a line and generates its
translation after it."""

CLASSIFIER = "classifier"
"""The name of an encoder with a head for labels."""

_WHAT = {
    "encoder-decoder": "translates a text into another",
    "decoder": "continues a text",
    JOINED: "translates a text and writes the translation after it",
    "encoder": "fills in masked tokens",
    CLASSIFIER: "gives a text one of several labels",
}
_INSTALL = {
    "huggingface": "pip install torch transformers",
    "ctranslate2": "pip install ctranslate2 tokenizers",
    "onnx": "npm install @huggingface/transformers",
}
_NAMES = {
    "huggingface": "Hugging Face Transformers",
    "ctranslate2": "CTranslate2",
    "onnx": "transformers.js and ONNX runtimes",
}
_LANGUAGES = {"huggingface": "python", "ctranslate2": "python", "onnx": "js"}
_CODE: dict[tuple[str, str], str] = {
    ("huggingface", "encoder-decoder"): """\
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

folder = "."  # where this file is
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForSeq2SeqLM.from_pretrained(folder)
batch = tokenizer(["A line to translate"], return_tensors="pt", padding=True)
written = model.generate(**batch)
print(tokenizer.batch_decode(written, skip_special_tokens=True))
""",
    ("huggingface", "decoder"): """\
from transformers import AutoModelForCausalLM, AutoTokenizer

folder = "."  # where this file is
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder)
batch = tokenizer("The text begins", return_tensors="pt")
written = model.generate(**batch, max_new_tokens=20, do_sample=True)
print(tokenizer.batch_decode(written, skip_special_tokens=True))
""",
    ("huggingface", JOINED): """\
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

folder = "."  # where this file is
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder)
line = tokenizer("A line to translate", add_special_tokens=False).input_ids
given = torch.tensor([[*line, BETWEEN]])  # the tokens between a line and its translation
all_real = torch.ones_like(given)
written = model.generate(given, attention_mask=all_real, max_new_tokens=20, num_beams=BEAM)
print(tokenizer.decode(written[0, given.shape[1] :], skip_special_tokens=True))
""",
    ("huggingface", "encoder"): """\
from transformers import AutoModelForMaskedLM, AutoTokenizer

folder = "."  # where this file is
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForMaskedLM.from_pretrained(folder)
batch = tokenizer("A line of text", return_tensors="pt")
logits = model(**batch).logits  # (batch, length, vocabulary)
print(tokenizer.batch_decode(logits.argmax(-1)))
""",
    ("huggingface", CLASSIFIER): """\
from transformers import pipeline

folder = "."  # where this file is
classify = pipeline("text-classification", model=folder, top_k=None)
print(classify(["A text to label"]))
""",
    ("ctranslate2", "encoder-decoder"): """\
import ctranslate2
from tokenizers import Tokenizer

folder = "."  # where this file is
tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
translator = ctranslate2.Translator(folder)  # compute_type="int8" is smaller and faster
tokens = tokenizer.encode("A line to translate", add_special_tokens=False).tokens
results = translator.translate_batch(
    [tokens], beam_size=BEAM, max_input_length=LONGEST, max_decoding_length=LONGEST
)
print(tokenizer.decode([tokenizer.token_to_id(token) for token in results[0].hypotheses[0]]))
""",
    ("ctranslate2", "decoder"): """\
import ctranslate2
from tokenizers import Tokenizer

folder = "."  # where this file is
tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
generator = ctranslate2.Generator(folder)  # compute_type="int8" is smaller and faster
tokens = STARTtokenizer.encode("The text begins", add_special_tokens=False).tokens
results = generator.generate_batch([tokens], max_length=20, sampling_topk=20)
print(tokenizer.decode(results[0].sequences_ids[0]))
""",
    ("ctranslate2", JOINED): """\
import ctranslate2
from tokenizers import Tokenizer

folder = "."  # where this file is
tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
generator = ctranslate2.Generator(folder)  # compute_type="int8" is smaller and faster
line = tokenizer.encode("A line to translate", add_special_tokens=False).tokens
prompt = [*line, *map(tokenizer.id_to_token, [BETWEEN])]  # what its translation stands behind
results = generator.generate_batch(
    [prompt], max_length=20, beam_size=BEAM, include_prompt_in_result=False
)
print(tokenizer.decode(results[0].sequences_ids[0]))
""",
    ("onnx", "encoder-decoder"): """\
import { pipeline } from "@huggingface/transformers";

const folder = "./"; // where this file is
const translate = await pipeline("translation", folder);
console.log(await translate(["A line to translate"], { max_new_tokens: LONGEST }));
""",
    ("onnx", "decoder"): """\
import { pipeline } from "@huggingface/transformers";

const folder = "./"; // where this file is
const write = await pipeline("text-generation", folder);
console.log(await write("The text begins", { max_new_tokens: 20, do_sample: true }));
""",
    ("onnx", JOINED): """\
import { AutoModelForCausalLM, AutoTokenizer, Tensor } from "@huggingface/transformers";

const folder = "./"; // where this file is
const tokenizer = await AutoTokenizer.from_pretrained(folder);
const model = await AutoModelForCausalLM.from_pretrained(folder);
const line = tokenizer.encode("A line to translate", { add_special_tokens: false });
const given = [...line, BETWEEN].map(BigInt); // the tokens between a line and its translation
const input_ids = new Tensor("int64", given, [1, given.length]);
const written = (await model.generate({ input_ids, max_new_tokens: 20 })).tolist()[0];
console.log(tokenizer.decode(written.slice(given.length), { skip_special_tokens: true }));
""",
    ("onnx", "encoder"): """\
import { AutoModelForMaskedLM, AutoTokenizer } from "@huggingface/transformers";

const folder = "./"; // where this file is
const tokenizer = await AutoTokenizer.from_pretrained(folder);
const model = await AutoModelForMaskedLM.from_pretrained(folder);
const { logits } = await model(tokenizer("A line of text"));
console.log(logits.dims); // batch, length, vocabulary
""",
    ("onnx", CLASSIFIER): """\
import { pipeline } from "@huggingface/transformers";

const folder = "./"; // where this file is
const classify = await pipeline("text-classification", folder, { top_k: null });
console.log(await classify(["A text to label"]));
""",
}


def write_readme(
    folder: Path, library: Library, description: Description, certificate: Certificate
) -> None:
    """Write the README.md of an exported folder: how to open it, with commands that run."""
    config, ids = description.model, description.ids
    kind = config.family if ids.target_start is None else JOINED
    kind = CLASSIFIER if config.labels else kind
    named = f": {', '.join(config.labels)}" if config.labels else ""
    lines = [
        f"# A Transformer for {_NAMES[library]}",
        "",
        f"This model {_WHAT[kind]}{named}. It has {config.n_layers} layers of width "
        f"{config.d_model}, {config.output_vocab_size:,} tokens, and takes at most "
        f"{config.max_length} tokens at once.",
        "",
        f"```bash\n{_INSTALL[library]}\n```",
        "",
    ]
    if has_tokenizer(folder):
        first = ids.prompt_start
        between = [token for token in (ids.eos, ids.target_start) if token is not None]
        figures = {
            "BEAM": BeamConfig().width,
            "LONGEST": config.max_length,
            "BETWEEN": ", ".join(map(str, between)),
            "START": "" if first is None else f"[tokenizer.id_to_token({first})] + ",
        }
        code = _CODE[library, kind]
        for word, figure in figures.items():
            code = code.replace(word, str(figure))
        lines += [f"```{_LANGUAGES[library]}\n{code}```", ""]
        if ids.strip and kind == CLASSIFIER:
            lines += [
                "clearhead removes white space from both ends of a text, and the pipeline does "
                "not: give it stripped texts, or labels and scores may differ.",
                "",
            ]
        if ids.strip and kind in ("encoder-decoder", JOINED):
            lines += [
                "Give it lines without spaces or a line break at either end, as in its training.",
                "",
            ]
    else:
        lines += ["The folder has no single tokenizer: the model takes and gives token ids.", ""]
    lines += [f"[{PARITY}]({PARITY}): {certificate.summary()}. Made with clearhead.", ""]
    (folder / README).write_text("\n".join(lines), encoding="utf-8")

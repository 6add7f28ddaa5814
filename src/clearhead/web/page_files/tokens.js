// Text to tokens and back, as clearhead's codec does it, over Hugging Face's tokenizers for browsers.
import { Tokenizer } from "../runtime/tokenizers.min.mjs";

// What Python's `strip` takes away, which is not quite what `trim` does.
const BLANK = "[\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]+";

export async function readText(facts, readJson) {
  const sides = {};
  for (const [side, name] of Object.entries(facts.tokenizers)) sides[side] = opened(await readJson(name));
  const ids = (text, side = "source") => sides[side].encode(text, { add_special_tokens: false }).ids.map(Number);
  const { before, behind, strip, mask } = facts.reading;

  function encode(text) {
    const clean = strip ? text.replace(new RegExp(`^${BLANK}|${BLANK}$`, "g"), "") : text;
    if (!mask) return [...before, ...ids(clean), ...behind];
    const pieces = clean.split(mask.text);
    const last = pieces.pop();
    // The token that is hidden has the blank before it, as the tokens of training have.
    return [...before, ...pieces.flatMap((piece) => [...ids(piece.replace(/ +$/, "")), mask.id]), ...ids(last), ...behind];
  }

  function decode(tokens) {
    const shown = tokens.filter((id) => !facts.controls.target.includes(id));
    if (!facts.pieces) return sides.target.decode(shown, { skip_special_tokens: true });
    const bytes = shown.flatMap((id) => Array.from(facts.pieces[id] ?? "", (c) => c.charCodeAt(0)));
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(bytes));
  }

  for (const [text, expected] of facts.probes) {
    if (encode(text).join() !== expected.join()) throw new Error(`the tokenizer works differently in this browser: ${JSON.stringify(text)}`);
  }
  return { encode, decode };
}

// Text never spells a control token: they are not searched for in it.
function opened(json) {
  return new Tokenizer({ ...json, added_tokens: json.added_tokens.filter((token) => !token.special), post_processor: null }, {});
}

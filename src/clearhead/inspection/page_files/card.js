// What the model is, how it was trained and what was proved: only in pages that carry a model.
import { word } from "./state.js";
import { make } from "./draw.js";

// Enough Markdown for a README: headings, paragraphs, lists, code, bold words and links' names.
export function readable(text) {
  return text.split(/^```\w*\n([\s\S]*?)^```$/m).flatMap((part, i) => (i % 2 ? [make("pre", { tabindex: "0" }, part)] : part.split(/\n\s*\n/).filter((block) => block.trim()).flatMap(blockOf)));
}

function blockOf(block) {
  const [before, ...listed] = `\n${block.trim()}`.split(/\n- /).map((item) => item.replace(/\s*\n\s*/g, " ").trim());
  const heading = before.match(/^#+ (.*)/);
  const items = listed.map((item) => make("li", {}, ...inline(item)));
  return [...(before ? [heading ? make("h3", {}, heading[1]) : make("p", {}, ...inline(before))] : []), ...(items.length ? [make("ul", {}, ...items)] : [])];
}

function inline(text) {
  return text.split(/(\*\*.+?\*\*|`[^`]+`|\[[^\]]+\]\([^)]+\))/).map((piece) => {
    if (piece.startsWith("**")) return make("b", {}, piece.slice(2, -2));
    if (piece.startsWith("`")) return make("code", {}, piece.slice(1, -1));
    return piece.replace(/^\[([^\]]+)\]\([^)]+\)$/, "$1");
  });
}

export function cardPanel(look, root) {
  return function draw() {
    const { about, recipe, training, parity, files } = look.live.card;
    const part = (title, text) => make("details", {}, make("summary", {}, title), make("pre", { tabindex: "0" }, text));
    root.replaceChildren(
      ...(about ? readable(about) : []),
      ...(training ? [make("p", {}, word("trainedFor").replace("{}", training.step.toLocaleString("en")).replace("{}", training.loss.toFixed(3)))] : []),
      make("p", { class: "note" }, `${word("proved")}${word("colon")}${parity}`),
      ...(recipe ? [part(word("recipe"), recipe)] : []),
      ...Object.entries(files).map(([name, text]) => part(name, text)),
      make("p", { class: "note" }, word("stays")),
    );
  };
}

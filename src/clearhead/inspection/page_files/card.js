// What the model is, how it was trained and what was proved: only in pages that carry a model.
import { word } from "./state.js";
import { make } from "./draw.js";

export function cardPanel(look, root) {
  return function draw() {
    const { about, recipe, training, parity, files } = look.live.card;
    const part = (label, text) => make("details", {}, make("summary", {}, word(label)), make("pre", { tabindex: "0" }, text));
    root.replaceChildren(
      ...(about ? [make("pre", { class: "about" }, about)] : []),
      ...(training ? [make("p", {}, word("trainedFor").replace("{}", training.step.toLocaleString("en")).replace("{}", training.loss.toFixed(3)))] : []),
      make("p", { class: "note" }, `${word("proved")}${word("colon")}${parity}`),
      ...(recipe ? [part("recipe", recipe)] : []),
      make("p", { class: "note" }, ...files.flatMap((name) => [make("a", { href: `model/${name}` }, name), " "])),
      make("p", { class: "note" }, word("stays")),
    );
  };
}

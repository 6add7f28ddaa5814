// What the training text has of the text: only in pages that were asked for it.
import { word } from "./state.js";
import { make } from "./draw.js";

export function learntPanel(look, root) {
  return function draw() {
    const { counts, nearest, searched, isAll } = look.learnt;
    const rows = counts.map(([piece, n]) => make("tr", { class: n ? "" : "never", "data-count": n },
      make("th", {}, piece), make("td", {}, n ? word("inLines").replace("{}", n.toLocaleString("en")) : word("neverSeen"))));
    const pairs = nearest.map((each) => make("li", { "data-number": each.number },
      ...each.texts.map((text, side) => make(side ? "p" : "b", {}, text)), make("small", {}, `${word("score")} ${each.score.toFixed(1)}`)));
    root.replaceChildren(
      make("table", {}, ...rows),
      make("h3", {}, word("nearestPairs")),
      make("ol", {}, ...pairs),
      make("p", { class: "note" }, isAll ? word("learntNote") : `${word("learntNote")} ${word("searched").replace("{}", searched.toLocaleString("en"))}`),
    );
  };
}

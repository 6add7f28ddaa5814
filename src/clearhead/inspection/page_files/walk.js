// Shapes: a walk through the run in the model's own order.
import { state, set, word } from "./state.js";
import { make } from "./draw.js";

export function walkPanel(look, root) {
  const steps = look.walk;
  const bar = make("div", { class: "choices" });
  const card = make("div", { class: "card", "aria-live": "polite" });
  const list = make("ol", { class: "walk" });
  root.append(bar, card, list);

  function move(by) { set({ step: Math.max(0, Math.min(steps.length - 1, state.step + by)) }); }

  return function draw() {
    const step = steps[state.step];
    bar.replaceChildren(
      make("button", { class: "choice", "aria-label": word("stepBack"), "data-walk": "back", onclick: () => move(-1) }, "‹"),
      make("span", { class: "count" }, `${state.step + 1} / ${steps.length}`),
      make("button", { class: "choice", "aria-label": word("stepOn"), "data-walk": "on", onclick: () => move(1) }, "›"),
    );
    const sizes = step.symbols.map((symbol, i) => make("span", { class: "size" }, make("b", {}, String(step.shape[i])), make("small", {}, symbol)));
    card.replaceChildren(
      make("h3", {}, step.name),
      make("p", { class: "formula" }, step.formula),
      make("p", { class: "sizes", "data-shape": step.shape.join(",") }, ...sizes),
      make("p", { class: "note" }, step.section ? `${word("wholePaper")} ${step.section}${state.language === "zh" ? ` ${word("section")}` : ""}` : word("noSection")),
      make("p", { class: "where", "data-file": step.file, "data-line": step.line }, `${step.file}:${step.line} ${step.function}`),
      make("pre", {}, make("code", {}, step.source)),
    );
    list.replaceChildren(...steps.map((each, i) => {
      const item = make("li", { "aria-current": i === state.step ? "step" : undefined },
        make("button", { class: "step", "data-place": i, onclick: () => set({ step: i }) }, make("span", {}, each.name), make("small", {}, each.shape.join(" × "))));
      return item;
    }), make("li", { class: "note" }, word("same")));
    const current = list.children[state.step];
    list.scrollTop = Math.max(0, current.offsetTop - list.offsetTop - list.clientHeight / 2);
  };
}

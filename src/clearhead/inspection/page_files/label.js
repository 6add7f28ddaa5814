// A classifier's decision: how likely each label is, and which tokens it depends on.
import { state, set, word } from "./state.js";
import { make, number, bar, colour, inkOn } from "./draw.js";

export function labelPanel(look, root) {
  const { names, probabilities, without } = look.label;
  const list = make("ol", { class: "candidates" });
  const title = make("h3");
  const tokens = make("p", { class: "strip" });
  const note = make("p", { class: "note" });
  root.append(list, title, tokens, note);
  const likeliest = names.map((_, i) => i).sort((a, b) => probabilities[b] - probabilities[a]);
  const most = Math.max(...without.map(Math.abs)) || 1;

  return function draw() {
    list.replaceChildren(...likeliest.map((i) => make("li", { class: `label-row ${names[i] === look.text ? "written" : ""}`, "data-label": names[i], "data-value": probabilities[i] }, make("span", { class: "candidate" }, names[i]), bar(probabilities[i], number(probabilities[i], 3)))));
    title.textContent = word("withoutToken").replace("{}", () => look.text);
    tokens.replaceChildren(...look.tokens.source.map((token, i) => {
      const share = (0.9 * without[i]) / most;
      const chip = make("button", { class: `chip ${token.control ? "control" : ""}`, "aria-pressed": String(state.token === i), "data-without-token": i, "data-value": without[i], title: number(without[i], 3), onclick: () => set({ token: i }) }, token.text);
      if (state.token !== i) { chip.style.background = colour(share); chip.style.color = inkOn(share); }
      return chip;
    }));
    const chosen = Math.min(state.token, without.length - 1);
    note.textContent = `${look.tokens.source[chosen].text}${word("colon")}${number(without[chosen], 3)} · ${word("withoutNote")}`;
  };
}

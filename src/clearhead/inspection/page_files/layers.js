// The residual stream: what would be predicted after each sublayer, and what each one adds.
import { state, set, word } from "./state.js";
import { tensor } from "./data.js";
import { make, number, colour, inkOn, bar, signedBar } from "./draw.js";

const COLUMNS = 40;

export function stageLabel(name) {
  const found = name.match(/layers\.(\d+)\.around_(\w+)\./);
  return found ? `L${found[1]} ${word(found[2])}` : word(name === "constant" ? "constant" : "embedding");
}

export function layersPanel(look, root) {
  const ids = tensor(look.lens.ids), probabilities = tensor(look.lens.probabilities);
  const ranks = tensor(look.lens.ranks), own = tensor(look.lens.own);
  const [stages, n, best] = ids.shape;
  const norms = tensor(look.stream.added);
  const shares = look.attribution ? tensor(look.attribution.values) : null;
  const note = make("p", { class: "note" });
  const table = make("div", { class: "scroll" });
  const title = make("h3");
  const detail = make("p", { class: "top5", "aria-live": "polite" });
  const adds = make("div", { class: "adds" });
  root.append(note, table, detail, title, adds);

  return function draw() {
    note.textContent = word("lensNote");
    const selected = Math.min(state.token, n - 1);
    const first = Math.max(0, Math.min(selected - COLUMNS / 2, n - COLUMNS)), last = Math.min(n, first + COLUMNS);
    const head = [make("th", {}, word("stage"))];
    for (let i = first; i < last; i++) head.push(make("th", { scope: "col", class: i === selected ? "selected" : "" }, `→${look.tokens.written[i].text}`));
    const rows = [];
    for (let stage = stages - 1; stage >= 0; stage--) {
      const cells = [make("th", { scope: "row" }, stageLabel(look.lens.stages[stage]))];
      for (let i = first; i < last; i++) {
        const at = (stage * n + i) * best, p = probabilities.values[at];
        const cell = make("td", { class: `lens ${i === selected ? "selected" : ""}`, "data-stage": stage, "data-token": i, "data-id": ids.values[at], "data-value": p, onclick: () => set({ token: i, step: state.step }), onmouseenter: () => describe(stage, i) }, look.labels.target[ids.values[at]]);
        cell.style.background = colour(p * 0.9);
        cell.style.color = inkOn(p * 0.9);
        cells.push(cell);
      }
      rows.push(make("tr", {}, ...cells));
    }
    table.replaceChildren(make("table", { class: "lens-table" }, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows)));
    const column = table.querySelector("th.selected");
    table.scrollLeft = column.offsetLeft - (table.clientWidth - column.offsetWidth) / 2;
    describe(stages - 1, selected);
    drawAdds(selected);
  };

  function describe(stage, i) {
    const parts = [make("strong", {}, `${stageLabel(look.lens.stages[stage])}${word("colon")}`)];
    for (let k = 0; k < best; k++) {
      const at = (stage * n + i) * best + k;
      parts.push(make("span", { class: "seen", "data-id": ids.values[at], "data-value": probabilities.values[at] }, make("b", {}, look.labels.target[ids.values[at]]), ` ${number(probabilities.values[at])}`));
    }
    parts.push(` · ${look.tokens.written[i].text}${word("colon")}${word("rank")} ${ranks.values[stage * n + i] + 1} · ${word("probability")} ${number(own.values[stage * n + i], 3)}`);
    detail.replaceChildren(...parts);
  }

  function drawAdds(i) {
    title.textContent = `${word("adds")}${word("colon")}→${look.tokens.written[i].text}`;
    const names = look.stream.names, lengths = names.map((_, k) => norms.values[k * n + i]);
    const longest = Math.max(...lengths);
    const rows = names.map((name, k) => {
      const cells = [make("th", { scope: "row" }, stageLabel(name)), make("td", { "data-length": lengths[k] }, bar(lengths[k] / longest, number(lengths[k], 1)))];
      if (shares) {
        const place = look.attribution.parts.indexOf(name);
        const value = place < 0 ? null : shares.values[place * n + i];
        cells.push(value === null ? make("td") : make("td", { "data-share": value, class: "share" }, signedBar(value, top(i)), make("span", { class: "bar-text" }, number(value))));
      }
      return make("tr", {}, ...cells);
    });
    // What stands beside the sublayers: the constant, and in a post-norm model the stream before.
    for (const [place, name] of (shares ? look.attribution.parts : []).entries()) {
      if (names.includes(name)) continue;
      const value = shares.values[place * n + i], label = name === "constant" ? word("constant") : `x → ${stageLabel(name)}`;
      rows.push(make("tr", {}, make("th", { scope: "row" }, label), make("td"), make("td", { "data-share": value, class: "share" }, signedBar(value, top(i)), make("span", { class: "bar-text" }, number(value)))));
    }
    const head = [make("th"), make("th", { scope: "col" }, word("length"))];
    if (shares) head.push(make("th", { scope: "col" }, word("logit").replace("{}", () => look.tokens.written[i].text)));
    adds.replaceChildren(make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows)), ...(shares ? [] : [make("p", { class: "note" }, word("noAttribution"))]));
  }

  function top(i) {
    let found = 0;
    for (let k = 0; k < look.attribution.parts.length; k++) found = Math.max(found, Math.abs(shares.values[k * n + i]));
    return found;
  }
}

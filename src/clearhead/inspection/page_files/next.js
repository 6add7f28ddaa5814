// The next token: candidates, and what temperature, top-k, top-p and min-p leave of them.
import { state, set, word } from "./state.js";
import { tensor } from "./data.js";
import { make, number } from "./draw.js";

const TOP_K = [0, 1, 2, 3, 5, 10, 20, 50, 100];

// What the sliders leave, as a question asks for it.
export function chosenCuts() {
  return { top_k: TOP_K[state.topK] || null, top_p: state.topP / 20, min_p: state.minP / 20 };
}

// The rules in the order in which decoding applies them. `logits` fall; `lse` is over all tokens.
export function chances(logits, lse, temperature, topK, topP, minP, vocabulary) {
  const scaled = Array.from(logits, (x) => x / temperature);
  const reason = scaled.map(() => null);
  let mass = lse, beyond = false;
  if (topK && topK < vocabulary) {
    if (topK <= scaled.length) {
      const least = scaled[topK - 1];
      scaled.forEach((x, i) => { if (x < least) reason[i] = "cutK"; });
      const top = scaled[0];
      mass = top + Math.log(scaled.reduce((sum, x, i) => sum + (reason[i] ? 0 : Math.exp(x - top)), 0));
    } else { beyond = true; }
  }
  let remain = !topK && scaled.length < vocabulary; // others, not stored here, may remain
  let p = scaled.map((x, i) => (reason[i] ? 0 : Math.exp(x - mass)));
  const renormalise = () => {
    const sum = p.reduce((a, b) => a + b, 0);
    p = p.map((x) => x / sum);
  };
  if (topP < 1) {
    let before = 0, cut = false;
    p.forEach((x, i) => {
      if (reason[i]) return;
      if (before >= topP) { reason[i] = "cutP"; cut = true; }
      before += x;
    });
    if (cut || before >= topP) { p = p.map((x, i) => (reason[i] ? 0 : x)); renormalise(); remain = false; } else { beyond = beyond || remain; }
  }
  if (minP > 0) {
    const least = minP * p[0];
    p.forEach((x, i) => { if (!reason[i] && x < least) reason[i] = "cutMin"; });
    if (reason.some((r) => r === "cutMin")) { p = p.map((x, i) => (reason[i] ? 0 : x)); renormalise(); } else { beyond = beyond || remain; }
  }
  return { p, reason, beyond };
}

export function nextPanel(look, root) {
  const stored = look.candidates;
  const ids = tensor(stored.ids), logits = tensor(stored.logits), lse = tensor(stored.lse);
  const n = ids.shape[1];
  const title = make("h3");
  const list = make("ol", { class: "candidates" });
  const sliders = make("div", { class: "sliders" });
  const note = make("p", { class: "note" });
  root.append(title, list, sliders, note);
  const settings = [
    ["temperature", "temperature", 0, stored.temperatures.length - 1, () => number(stored.temperatures[state.temperature], 1)],
    ["topK", "topK", 0, TOP_K.length - 1, () => (state.topK ? String(TOP_K[state.topK]) : word("all"))],
    ["topP", "topP", 1, 20, () => (state.topP === 20 ? word("off") : number(state.topP / 20))],
    ["minP", "minP", 0, 10, () => (state.minP ? number(state.minP / 20) : word("off"))],
  ];
  const inputs = settings.map(([key, label, low, high, show]) => {
    const input = make("input", { type: "range", min: low, max: high, step: 1, value: state[key], "data-slider": key, id: `slider-${key}`, oninput: () => set({ [key]: Number(input.value) }) });
    const output = make("output");
    const name = make("label", { for: `slider-${key}` });
    sliders.append(make("div", { class: "slider" }, name, input, output));
    return () => { name.textContent = word(label); input.value = state[key]; output.textContent = show(); };
  });

  return function draw() {
    const row = Math.min(state.token, ids.shape[0] - 1);
    const at = row * n, temperatures = stored.temperatures.length;
    const found = chances(
      logits.values.slice(at, at + n), lse.values[row * temperatures + state.temperature],
      stored.temperatures[state.temperature], TOP_K[state.topK], state.topP / 20, state.minP / 20, look.model.vocabulary,
    );
    const written = look.tokens.written[row];
    const before = look.tokens.fed ? look.tokens.fed[row] : look.tokens.source[row];
    title.textContent = word(look.tokens.fed ? "afterWord" : "at").replace("{}", () => before.text);
    const entries = [];
    let shown = 0;
    for (let i = 0; i < n && shown < 10; i++, shown++) entries.push(i);
    const place = ids.values.slice(at, at + n).indexOf(written.id);
    if (place >= 10) entries[9] = place;
    list.replaceChildren(...entries.map((i) => {
      const id = ids.values[at + i], reason = found.reason[i];
      const fillBar = make("span", { class: "fill" });
      fillBar.style.width = `${found.p[i] * 100}%`;
      const item = make("li", { "data-value": found.p[i], "data-id": id, "data-cut": reason ?? "", class: `${reason ? "cut" : ""} ${id === written.id ? "written" : ""}` },
        make("span", { class: "candidate" }, look.labels.target[id]), make("span", { class: "bar" }, fillBar),
        make("span", { class: "bar-text" }, reason ? word(reason) : number(found.p[i], 3)));
      if (i >= 10) item.setAttribute("value", i + 1);
      return item;
    }));
    for (const refresh of inputs) refresh();
    const kept = found.reason.filter((r) => !r).length;
    const cuts = found.reason.some((r) => r);
    note.textContent = `${written.given ? word("prompt") : word("chosen")}${word("colon")}${written.text} · ${word("rule")} ${cuts ? `${word("kept")}${word("colon")}${kept}` : ""} ${found.beyond ? word("beyond") : ""}`;
  };
}

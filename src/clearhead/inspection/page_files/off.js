// Live only: heads and sublayers that are switched off, and what that changes.
import { state, set, word } from "./state.js";
import { make, number } from "./draw.js";

const ATTENTIONS = { self: ["encoder", "self_attention"], causal: ["decoder", "self_attention"], cross: ["decoder", "cross_attention"] };

export function headSwitch(kind, layer, head) {
  const [tower, part] = ATTENTIONS[kind];
  return `${tower}.layers.${layer}.${part}.heads:${head}`;
}

export function toggled(name) {
  return state.off.includes(name) ? state.off.filter((each) => each !== name) : [...state.off, name];
}

export function switchLabel(name) {
  const [, tower, layer, part, head] = name.match(/^(\w+)\.layers\.(\d+)\.(?:around_)?(\w+?)\.(?:added|heads:(\d+))$/);
  return `${word(tower)} L${layer} ${word(part)}${head === undefined ? "" : ` · ${word("head")} ${head}`}`;
}

export function offPanel(look, root) {
  const note = make("p", { class: "note" });
  const effect = make("div", { class: "effect", "aria-live": "polite" });
  const chips = make("div", { class: "choices" });
  const table = make("div", { class: "scroll" });
  root.append(note, effect, chips, table);
  const sublayers = look.live.switches.filter((name) => name.endsWith(".added"));
  const parts = [...new Set(sublayers.map((name) => name.replace(/layers\.\d+\./, "")))];
  const layers = Math.max(...sublayers.map((name) => Number(name.match(/layers\.(\d+)/)[1]))) + 1;

  function drawEffect() {
    const found = look.effect;
    if (!found) { effect.replaceChildren(...(state.off.length ? [] : [make("p", {}, word("allOn"))])); return; }
    const line = (label, text, extra) => make("p", {}, make("span", { class: "label" }, word(label)), make("b", extra, text || "∅"));
    const lost = found.log_prob_off - found.log_prob;
    const [less, more] = look.label ? ["lessLikelyLabel", "moreLikelyLabel"] : ["lessLikely", "moreLikely"];
    effect.replaceChildren(
      line("wholeModel", found.text, { "data-whole": "" }), line("withoutIt", look.text, { "data-without": "" }),
      make("p", { "data-before": found.log_prob, "data-after": found.log_prob_off }, `${word(lost < 0 ? less : more).replace("{}", number(Math.abs(lost)))} (${number(found.log_prob)} → ${number(found.log_prob_off)})`),
    );
  }

  return function draw() {
    note.textContent = word(look.label ? "offNoteLabel" : "offNote");
    drawEffect();
    const kinds = ["zero", "mean"].map((kind) => make("button", { class: "choice", "aria-pressed": String(state.replace === kind), "data-replace": kind, onclick: () => set({ replace: kind }) }, word(kind === "zero" ? "byZero" : "byMean")));
    const all = state.off.length ? [make("button", { class: "choice", "data-all-on": true, onclick: () => set({ off: [] }) }, word("switchAllOn"))] : [];
    chips.replaceChildren(...kinds, make("span", { class: "gap" }), ...all, ...state.off.map((name) => make("button", { class: "choice off", "data-on": name, onclick: () => set({ off: toggled(name) }) }, `${switchLabel(name)} ×`)));
    const head = make("tr", {}, make("th"), ...Array.from({ length: layers }, (_, i) => make("th", { scope: "col" }, `L${i}`)));
    const rows = parts.map((part) => {
      const [tower, around] = part.split(".");
      const cells = Array.from({ length: layers }, (_, layer) => {
        const name = `${tower}.layers.${layer}.${around}.added`;
        if (!sublayers.includes(name)) return make("td");
        const off = state.off.includes(name);
        const button = make("button", { class: `switch ${off ? "off" : ""}`, role: "switch", "aria-checked": String(!off), "data-switch": name, onclick: () => set({ off: toggled(name) }) }, word(off ? "isOff" : "isOn"));
        button.setAttribute("aria-label", switchLabel(name));
        return make("td", {}, button);
      });
      return make("tr", {}, make("th", { scope: "row" }, `${word(tower)} ${word(around.slice(7))}`), ...cells);
    });
    table.replaceChildren(make("table", { class: "switches" }, make("thead", {}, head), make("tbody", {}, ...rows)));
  };
}

// Beam search as a tree; columns are steps. d3-hierarchy lays it out.
import { state, set, word } from "./state.js";
import { make, makeSvg, number } from "./draw.js";

export function treePanel(look, root) {
  const beam = look.beam;
  const bar = make("div", { class: "choices" });
  const holder = make("div", { class: "scroll tree" });
  const detail = make("p", { class: "detail", "aria-live": "polite" });
  const legend = make("p", { class: "note" });
  root.append(bar, holder, detail, legend);

  return function draw() {
    bar.replaceChildren(make("button", { class: "choice", "aria-pressed": String(state.dropped), "data-dropped": true, onclick: () => set({ dropped: !state.dropped }) }, word("showDropped")), make("span", { class: "note" }, `${word("width")} ${beam.width}`));
    const kept = beam.nodes.filter((node) => state.dropped || node.fate !== "dropped");
    const tree = globalThis.d3.stratify().id((d) => d.id).parentId((d) => d.parent)(kept);
    const size = state.projector ? [38, 104] : [28, 78];
    globalThis.d3.tree().nodeSize(size).separation(() => 1)(tree);
    const nodes = tree.descendants();
    const low = Math.min(...nodes.map((d) => d.x)), high = Math.max(...nodes.map((d) => d.x));
    const width = (tree.height + 1) * size[1] + 60, height = high - low + 3 * size[0];
    const svg = makeSvg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "tree" });
    const x = (d) => d.y + 16, y = (d) => d.x - low + 1.5 * size[0];
    for (const link of tree.links()) {
      const from = [x(link.source), y(link.source)], to = [x(link.target), y(link.target)];
      const middle = (from[0] + to[0]) / 2 - 12;
      svg.append(makeSvg("path", { d: `M${from}C${middle},${from[1]} ${middle},${to[1]} ${to}`, class: `link ${link.target.data.fate} ${link.target.data.best ? "best" : ""}`, "stroke-width": 1 + 4 * Math.exp(link.target.data.log_prob) }));
    }
    for (const node of nodes) {
      const data = node.data;
      const group = makeSvg("g", { class: `node ${data.fate} ${data.best ? "best" : ""} ${state.node === data.id ? "selected" : ""}`, transform: `translate(${x(node)},${y(node)})`, tabindex: "0", role: "treeitem", "data-node": data.id, "data-parent": data.parent ?? "", "data-total": data.total, "data-score": data.score ?? "", "data-fate": data.fate });
      group.append(makeSvg("circle", { r: 5 }));
      if (data.fate === "finished") group.append(makeSvg("circle", { r: 8, class: "ring" }));
      if (data.parent !== null) group.append(makeSvg("text", { x: 7, dy: "-0.5em" }, makeSvg("tspan", {}, data.text)));
      if (data.fate === "finished") group.append(makeSvg("text", { x: 11, dy: "0.6em", class: "score" }, makeSvg("tspan", {}, number(data.score, 3))));
      group.addEventListener("mouseenter", () => describe(node));
      group.addEventListener("focus", () => describe(node));
      group.addEventListener("click", () => { set({ node: data.id }); describe(node); });
      svg.append(group);
    }
    holder.replaceChildren(svg);
    holder.scrollTop = Math.max(0, y(tree) - holder.clientHeight / 2);
    legend.textContent = `◉ ${word("finished")} · ┄ ${word("dropped")} · ${word("best")}${word("colon")}${beam.best_text}`;
    const chosen = nodes.find((d) => d.data.id === state.node) ?? nodes.find((d) => d.data.best && d.data.fate === "finished");
    if (chosen) describe(chosen);
  };

  function describe(node) {
    const data = node.data;
    const text = node.ancestors().reverse().slice(1).map((d) => d.data.text).join(" ");
    const parts = [`${text || "●"} · ${word("fate")}${word("colon")}${word(data.fate === "kept" ? "kept_" : data.fate)}`];
    if (data.parent !== null) parts.push(`${word("logProb")} ${number(data.log_prob, 3)}`, `${word("total")} ${number(data.total, 3)}`);
    if (data.score !== undefined && data.score !== null) parts.push(`${word("divisor")} ${number(data.divisor, 2)} → ${word("score")} ${number(data.score, 3)}`);
    detail.textContent = parts.join(" · ");
  }
}

// Attention: all heads small, one head large, and the two lists of the selected token.
import { state, set, word } from "./state.js";
import { weightsOf } from "./data.js";
import { make, number, paintMatrix, colour, shade } from "./draw.js";
import { headSwitch, toggled } from "./off.js";

const LEAST = 0.005; // what would be shown as 0.00 is left out
const HEAD_COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999933", "#444444"];

export function rowKey(look, kind) {
  return kind === "self" && look.model.family !== "encoder" ? "source" : "token";
}

export function rowLabels(look, kind) {
  if (kind === "self") return look.tokens.source.map((t) => t.text);
  return look.tokens.written.map((t) => `→${t.text}`);
}

export function columnLabels(look, kind) {
  return (kind === "causal" ? look.tokens.fed : look.tokens.source).map((t) => t.text);
}

export function attentionPanel(look, root) {
  const kinds = Object.keys(look.weights);
  const bar = make("div", { class: "choices", role: "group" });
  const grid = make("div", { class: "thumbs", role: "group" });
  const canvas = make("canvas", { class: "large", tabindex: "0", role: "img" });
  const scroll = make("div", { class: "scroll" }, canvas);
  const title = make("h3");
  const headOff = make("span");
  const lists = make("div", { class: "lists", "aria-live": "polite" });
  const table = make("div", { class: "scroll numbers" });
  const scale = make("p", { class: "note" });
  const caution = make("p", { class: "note" });
  root.append(bar, make("div", { class: "attention" }, grid, make("div", { class: "one" }, make("div", { class: "choices" }, title, headOff), scroll, table, scale, lists)), caution);
  const geometry = { left: 0, top: 0, cell: 0 };

  function drawBar() {
    const buttons = kinds.map((kind) => make("button", { class: "choice", "aria-pressed": String(kind === state.kind), "data-kind": kind, onclick: () => set(chooseKind(look, kind)) }, word(kind)));
    const modes = ["mean", "max"].map((mode) => make("button", { class: "choice", "aria-pressed": String(state.head === mode), "data-mode": mode, onclick: () => set({ head: state.head === mode ? 0 : mode }) }, word(mode)));
    const rootScale = make("button", { class: "choice", "aria-pressed": String(state.root), "data-root": true, onclick: () => set({ root: !state.root }) }, "√");
    rootScale.title = word("root");
    const asTable = make("button", { class: "choice", "aria-pressed": String(state.table), "data-numbers": true, onclick: () => set({ table: !state.table }) }, word(state.table ? "picture" : "numbers"));
    bar.replaceChildren(...buttons, make("span", { class: "gap" }), ...modes, rootScale, asTable);
  }

  function drawThumbs() {
    const weights = look.weights[state.kind];
    const [layers, heads, rows, columns] = weights.shape;
    grid.style.gridTemplateColumns = `auto repeat(${heads}, minmax(0, 1fr))`;
    const cells = [make("span")];
    for (let head = 0; head < heads; head++) cells.push(make("span", { class: "axis" }, `h${head}`));
    for (let layer = 0; layer < layers; layer++) {
      cells.push(make("span", { class: "axis" }, `L${layer}`));
      for (let head = 0; head < heads; head++) {
        const small = make("canvas");
        paintMatrix(small, weightsOf(weights, layer, head), Math.max(1, Math.floor(64 / Math.max(rows, columns))));
        const chosen = state.layer === layer && state.head === head;
        const facts = look.heads[state.kind][layer][head];
        const off = state.off.includes(headSwitch(state.kind, layer, head));
        const button = make("button", { class: `thumb ${off ? "off" : ""}`, "aria-pressed": String(chosen), "data-layer": layer, "data-head": head, onclick: () => set({ layer, head }) }, small);
        button.setAttribute("aria-label", `${word("layer").replace("{}", layer)} ${word("head")} ${head}`);
        button.title = `${word("layer").replace("{}", layer)} · ${word("head")} ${head}\n${word("entropy")} ${number(facts.entropy)}\n${word("firstShare")} ${number(facts.first)}\n${word("previousShare")} ${number(facts.previous)}`;
        if (chosen) button.style.outlineColor = HEAD_COLOURS[head % HEAD_COLOURS.length];
        cells.push(button);
      }
    }
    grid.replaceChildren(...cells);
  }

  function drawLarge() {
    const matrix = weightsOf(look.weights[state.kind], state.layer, state.head);
    const rows = rowLabels(look, state.kind), columns = columnLabels(look, state.kind);
    scroll.hidden = state.table; // what is hidden has no width
    const context = canvas.getContext("2d");
    let font = state.projector ? 19 : 13;
    context.font = `${font}px system-ui, sans-serif`;
    const widest = (labels) => Math.min(150, Math.max(...labels.map((l) => context.measureText(l).width)));
    const room = Math.max(120, scroll.clientWidth - widest(rows) - 24);
    const cell = Math.max(4, Math.min(state.projector ? 48 : 34, Math.floor(room / matrix.columns)));
    font = Math.max(10, Math.min(font, cell - 2)); // characters of Chinese fill their line
    const face = `${font}px system-ui, sans-serif`;
    const left = Math.ceil(widest(rows)) + 10, top = Math.ceil(widest(columns)) + 12;
    Object.assign(geometry, { left, top, cell });
    const ratio = window.devicePixelRatio || 1;
    const width = left + cell * matrix.columns + 30, height = top + cell * matrix.rows + 4;
    canvas.width = width * ratio; canvas.height = height * ratio;
    canvas.style.width = `${width}px`; canvas.style.height = `${height}px`;
    context.scale(ratio, ratio);
    context.font = face;
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--ink"), accent = style.getPropertyValue("--accent"), line = style.getPropertyValue("--line");
    const key = rowKey(look, state.kind);
    for (let row = 0; row < matrix.rows; row++) {
      for (let column = 0; column < matrix.columns; column++) {
        context.fillStyle = colour(shade(matrix.values[row * matrix.columns + column]));
        context.fillRect(left + column * cell, top + row * cell, cell, cell);
      }
    }
    context.strokeStyle = line;
    context.strokeRect(left - 0.5, top - 0.5, cell * matrix.columns + 1, cell * matrix.rows + 1);
    const some = cell < font ? Math.ceil(font / cell) : 1;
    context.textBaseline = "middle";
    for (let row = 0; row < matrix.rows; row++) {
      const chosen = row === state[key];
      if (row % some && !chosen) continue;
      context.fillStyle = chosen ? accent : ink;
      context.font = chosen ? `700 ${face}` : face;
      context.textAlign = "right";
      context.fillText(rows[row], left - 6, top + row * cell + cell / 2, left - 6);
    }
    context.font = face;
    context.fillStyle = ink;
    const fits = columns.every((label) => context.measureText(label).width <= cell * some);
    for (let column = 0; column < matrix.columns; column += some) {
      context.save();
      context.translate(left + column * cell + cell / 2, top - (fits ? 10 : 6));
      if (!fits) context.rotate(-Math.PI / 2);
      context.textAlign = fits ? "center" : "left";
      context.fillText(columns[column], 0, 0, top - 8);
      context.restore();
    }
    context.strokeStyle = accent;
    context.lineWidth = 2;
    context.strokeRect(left, top + state[key] * cell, cell * matrix.columns, cell);
    title.textContent = `${word(state.kind)} · ${word("layer").replace("{}", state.layer)} · ${typeof state.head === "number" ? `${word("head")} ${state.head}` : word(state.head)}`;
    canvas.setAttribute("aria-label", title.textContent);
    drawSwitch();
    drawLists(matrix, rows, columns, state[key]);
    drawTable(matrix, rows, columns);
  }

  function drawSwitch() {
    if (!look.live || typeof state.head !== "number") { headOff.replaceChildren(); return; }
    const name = headSwitch(state.kind, state.layer, state.head), off = state.off.includes(name);
    headOff.replaceChildren(make("button", { class: `choice ${off ? "off" : ""}`, role: "switch", "aria-checked": String(!off), "data-head-switch": name, onclick: () => set({ off: toggled(name) }) }, word(off ? "switchOn" : "switchHead")));
  }

  function drawLists(matrix, rows, columns, row) {
    const seen = [], seeing = [];
    for (let column = 0; column < matrix.columns; column++) seen.push([columns[column], matrix.values[row * matrix.columns + column], column]);
    seen.sort((a, b) => b[1] - a[1]);
    const entry = ([label, value, place]) => make("span", { class: "seen", "data-value": value, "data-place": place }, make("b", {}, label), ` ${number(value)}`);
    const parts = [make("p", { class: "looks" }, make("strong", {}, rows[row] ?? ""), ` ${word("looksAt")}${word("colon")}`, ...seen.slice(0, 8).filter(([, value], i) => value >= LEAST || i === 0).map(entry))];
    const column = columnOf(row);
    if (column !== null) {
      for (let r = 0; r < matrix.rows; r++) seeing.push([rows[r], matrix.values[r * matrix.columns + column], r]);
      const some = seeing.filter((x) => x[1] > 0.01).sort((a, b) => b[1] - a[1]).slice(0, 8);
      parts.push(make("p", { class: "seen-by" }, make("strong", {}, columns[column]), ` ${word("lookedAtBy")}${word("colon")}`, ...(some.length ? some.map(entry) : [word("nobody")])));
    }
    lists.replaceChildren(...parts);
  }

  // Which column stands for the selection: the selected source token, or the row's own token.
  function columnOf(row) {
    if (state.kind === "cross") return Math.min(state.source, look.tokens.source.length - 1);
    return row;
  }

  function drawTable(matrix, rows, columns) {
    table.hidden = !state.table;
    if (!state.table) { table.replaceChildren(); return; }
    const head = make("tr", {}, make("th"), ...columns.map((c) => make("th", { scope: "col" }, c)));
    const body = rows.map((label, r) => make("tr", {}, make("th", { scope: "row" }, label), ...columns.map((_, c) => {
      const value = matrix.values[r * matrix.columns + c];
      return make("td", { "data-value": value }, number(value, 3));
    })));
    table.replaceChildren(make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)));
  }

  function place(event) {
    const box = canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top - geometry.top) / geometry.cell);
    const column = Math.floor((event.clientX - box.left - geometry.left) / geometry.cell);
    const weights = look.weights[state.kind];
    const changes = {};
    if (row >= 0 && row < weights.shape[2]) changes[rowKey(look, state.kind)] = row;
    if (column >= 0 && column < weights.shape[3] && state.kind === "cross") changes.source = column;
    set(changes);
  }
  canvas.addEventListener("mousemove", place);
  canvas.addEventListener("click", place);
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    const side = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step && !side) return;
    event.preventDefault();
    const key = rowKey(look, state.kind), [, , rows, columns] = look.weights[state.kind].shape;
    if (step) set({ [key]: Math.max(0, Math.min(rows - 1, state[key] + step)) });
    else if (state.kind === "cross") set({ source: Math.max(0, Math.min(columns - 1, state.source + side)) });
  });

  return function draw(changes) {
    const only = changes && Object.keys(changes).every((k) => ["token", "source"].includes(k));
    if (!only) {
      drawBar();
      drawThumbs();
      caution.textContent = word(look.live ? "cautionLive" : "caution");
      scale.textContent = `${word("range")}${state.root ? ` · ${word("root")}` : ""}${look.quantisation ? ` · ${word("quantised")}${look.quantisation}` : ""}`;
    }
    drawLarge();
  };
}

export function chooseKind(look, kind) {
  const [layers, heads] = look.weights[kind].shape;
  return { kind, layer: Math.min(state.layer, layers - 1), head: typeof state.head === "number" ? Math.min(state.head, heads - 1) : state.head };
}

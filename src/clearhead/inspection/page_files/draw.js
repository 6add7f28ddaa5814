// Small helpers: elements, colours, bars.
import { state } from "./state.js";

const SVG = "http://www.w3.org/2000/svg";

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  return fill(element, attributes, children);
}

export function makeSvg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children) {
    if (child !== null && child !== undefined) element.append(child);
  }
  return element;
}

const ENDS = { light: [[255, 255, 255], [31, 90, 166]], dark: [[16, 20, 27], [143, 199, 255]] };
const NEGATIVE = { light: [214, 106, 20], dark: [255, 163, 84] };

export function colour(x) {
  const [low, high] = ENDS[state.theme];
  const end = x >= 0 ? high : NEGATIVE[state.theme];
  const t = Math.min(1, Math.abs(x));
  return `rgb(${low.map((c, i) => Math.round(c + (end[i] - c) * t)).join(",")})`;
}

export function inkOn(x) {
  const dark = state.theme === "dark";
  return Math.abs(x) > 0.55 ? (dark ? "#10141b" : "#ffffff") : (dark ? "#e8edf4" : "#16202c");
}

export function shade(x) { return state.root ? Math.sqrt(x) : x; }

export function number(x, digits = 2) {
  if (!Number.isFinite(x)) return x < 0 ? "−∞" : "∞";
  return x.toFixed(digits).replace("-", "−");
}

export function paintMatrix(canvas, matrix, cell) {
  canvas.width = matrix.columns * cell;
  canvas.height = matrix.rows * cell;
  const context = canvas.getContext("2d");
  for (let row = 0; row < matrix.rows; row++) {
    for (let column = 0; column < matrix.columns; column++) {
      context.fillStyle = colour(shade(matrix.values[row * matrix.columns + column]));
      context.fillRect(column * cell, row * cell, cell, cell);
    }
  }
}

export function bar(share, text, extra = {}) {
  const box = make("span", { class: `bar ${extra.class ?? ""}` });
  const inner = make("span", { class: "fill" });
  inner.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  box.append(inner);
  return make("span", { class: "bar-row" }, box, make("span", { class: "bar-text" }, text));
}

export function signedBar(value, top) {
  const box = make("span", { class: "signed" });
  const inner = make("span", { class: value >= 0 ? "plus" : "minus" });
  inner.style.width = `${(Math.abs(value) / (top || 1)) * 50}%`;
  box.append(inner);
  return box;
}

// One state for the whole page: every panel draws from it, and every action goes through `set`.
import { WORDS } from "./words.js";

export const state = {
  kind: "cross", layer: 0, head: 0, token: 0, source: 0,
  language: "en", theme: "light", projector: false, root: false, panel: null,
  temperature: 9, topK: 0, topP: 20, minP: 0, step: 0, dropped: true, node: null, table: false,
  off: [], replace: "zero",
};
const listeners = [];

export function listen(draw) { listeners.push(draw); }

// A live page shows one document after another; the panels of the last one listen no more.
export function forget() { listeners.length = 0; }

export function set(changes) {
  let changed = false;
  for (const [key, value] of Object.entries(changes)) {
    if (state[key] !== value) { state[key] = value; changed = true; }
  }
  if (!changed) return;
  keepingFocus(() => { for (const draw of [...listeners]) draw(changes); });
  writeAddress();
}

// Drawing makes elements anew: the one that takes the place of the focused one is focused.
export function keepingFocus(draw) {
  const before = document.activeElement;
  const marks = [...(before?.attributes ?? [])].filter(({ name }) => name === "id" || name.startsWith("data-"));
  draw();
  if (!marks.length || before.isConnected) return;
  const alike = marks.map(({ name, value }) => `[${name}="${CSS.escape(value)}"]`).join("");
  document.querySelector(alike)?.focus({ preventScroll: true });
}

export function word(key) { return WORDS[state.language][key] ?? key; }

function writeAddress() {
  const text = `#${state.kind}.${state.layer}.${state.head}.q${state.token}.${state.language}`;
  try { history.replaceState(null, "", text); } catch { /* a page inside a frame has no address */ }
}

// A link may end with the panel that a narrow window shows first: #cross.2.1.q4.en.next
export function readAddress(kinds) {
  const parts = location.hash.slice(1).split(".");
  if (parts.length < 5 || !kinds.includes(parts[0])) return {};
  const [kind, layer, head, token, language, panel] = parts;
  const found = { kind, layer: Number(layer) || 0, token: Number(token.slice(1)) || 0 };
  found.head = ["mean", "max"].includes(head) ? head : Number(head) || 0;
  if (WORDS[language]) found.language = language;
  if (panel) found.panel = panel;
  return found;
}

export function remembered(key, value) {
  try {
    if (value === undefined) return localStorage.getItem(`clearhead.${key}`);
    localStorage.setItem(`clearhead.${key}`, value);
  } catch { /* storage may be forbidden; the page works without it */ }
  return null;
}

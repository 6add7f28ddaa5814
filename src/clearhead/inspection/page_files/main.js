// The page: header, tokens, panels, keys.
import { state, set, listen, forget, keepingFocus, word, readAddress, remembered } from "./state.js";
import { readDocument } from "./data.js";
import { make } from "./draw.js";
import { attentionPanel, chooseKind } from "./attention.js";
import { labelPanel } from "./label.js";
import { nextPanel } from "./next.js";
import { layersPanel } from "./layers.js";
import { treePanel } from "./tree.js";
import { walkPanel } from "./walk.js";
import { learntPanel } from "./learnt.js";
import { cardPanel } from "./card.js";
import { offPanel, toggled, headSwitch } from "./off.js";
import { liveBar } from "./live.js";

const ALL_PANELS = ["label", "attention", "off", "next", "layers", "beam", "learnt", "shapes", "card"];
const ICONS = { label: "▬", attention: "▚", off: "◌", next: "▤", layers: "▥", beam: "├", learnt: "❞", shapes: "▦", card: "¶" };
const BUILDERS = { label: labelPanel, attention: attentionPanel, off: offPanel, next: nextPanel, layers: layersPanel, beam: treePanel, learnt: learntPanel, shapes: walkPanel, card: cardPanel };
const TOUCHED = { label: ["token"], attention: ["token", "source", "kind", "layer", "head", "root", "table", "off"], off: ["off", "replace"], next: ["token", "temperature", "topK", "topP", "minP"], layers: ["token"], beam: ["dropped", "node"], learnt: [], shapes: ["step"], card: [] };
const TITLES = { off: "off_" }; // "off" is the word on a slider
const FRAME = ["language", "theme", "projector", "panel"];

async function start() {
  const look = await readDocument();
  const kinds = Object.keys(look.weights);
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  // A page for anybody speaks the reader's language.
  const language = look.live?.graph && navigator.language.startsWith("zh") ? "zh" : look.language;
  Object.assign(state, { kind: kinds[kinds.length - 1], language, theme: remembered("theme") ?? (dark ? "dark" : "light"), token: look.first ?? 0 });
  const suggested = look.suggested?.[state.kind];
  if (suggested) Object.assign(state, { layer: suggested[0], head: suggested[1] });
  Object.assign(state, readAddress(kinds));

  const frame = { header: make("header"), live: make("section", { class: "live" }), strips: make("section", { class: "strips" }), main: make("main"), tabs: make("nav", { class: "tabs" }), help: make("dialog") };
  frame.live.hidden = !look.live;
  document.body.append(...Object.values(frame));
  let view = null;
  const bar = look.live ? liveBar(look, frame.live, (fresh) => { state.node = null; keepingFocus(() => { view = show(fresh, frame, bar); }); }) : null;
  view = show(look, frame, bar);
  addEventListener("keydown", (event) => view.press(event));
  addEventListener("resize", () => view.resize());
  document.documentElement.dataset.ready = "true";
}

// Draws a document into the frame, in the place of the one before.
function show(look, { header, strips, main, tabs, help }, bar) {
  forget();
  const kinds = Object.keys(look.weights);
  clamp(look, kinds);
  const needs = { label: look.label, off: look.live, next: look.candidates, layers: look.lens, beam: look.beam, learnt: look.learnt, card: look.live?.card };
  const shown = ALL_PANELS.filter((name) => !(name in needs) || needs[name]);
  if (!shown.includes(state.panel)) state.panel = shown[0];
  const columns = { left: make("div", { class: "column" }), right: make("div", { class: "column" }) };
  main.replaceChildren(columns.left, columns.right);
  const homes = { label: columns.left, attention: look.label ? columns.right : columns.left, off: columns.left, beam: columns.left, learnt: columns.left, next: columns.right, layers: columns.right, shapes: main, card: main };
  const panels = shown.map((name) => {
    const title = make("h2", { id: `title-${name}` });
    const body = make("div", { class: "body" });
    const section = make("section", { class: "panel", id: `panel-${name}`, "aria-labelledby": `title-${name}`, tabindex: "-1" }, title, body);
    homes[name].append(section);
    return { name, title, section, draw: BUILDERS[name](look, body) };
  });

  function drawFrame() {
    const root = document.documentElement;
    root.lang = state.language === "zh" ? "zh-CN" : "en";
    root.dataset.theme = state.theme;
    root.dataset.projector = String(state.projector);
    root.dataset.panel = state.panel;
    const button = (label, title, action, name) => make("button", { class: "icon", title, "aria-label": title, onclick: action, "data-action": name }, label);
    header.replaceChildren(
      make("h1", {}, look.model.name),
      make("p", { class: "facts" }, [word(look.model.family), `${look.model.parameters.toLocaleString("en")} ${word("parameters")}`, `d_model ${look.model.d_model}`, word("nHeads").replace("{}", look.model.n_heads)].join(" · ")),
      make("div", { class: "tools" },
        button(word("language"), word("keyLanguage"), () => set({ language: state.language === "en" ? "zh" : "en" }), "language"),
        button("◐", word("theme"), changeTheme, "theme"),
        button("Aa", word("projector"), () => set({ projector: !state.projector }), "projector"),
        button("?", word("help"), showHelp, "help")),
    );
    tabs.style.gridTemplateColumns = `repeat(${shown.length}, 1fr)`;
    tabs.replaceChildren(...shown.map((name) => make("button", { "aria-pressed": String(state.panel === name), "data-tab": name, onclick: () => set({ panel: name }) }, make("span", { "aria-hidden": "true" }, ICONS[name]), make("small", {}, word(TITLES[name] ?? name)))));
    for (const panel of panels) panel.title.textContent = word(TITLES[panel.name] ?? panel.name);
  }

  function strip(label, tokens, key, arrow) {
    const row = make("div", { class: "strip" }, make("span", { class: "label" }, label));
    tokens.forEach((token, i) => {
      const chip = make("button", { class: `chip ${token.control ? "control" : ""} ${token.given ? "given" : ""}`, "aria-pressed": String(state[key] === i), [`data-${key}`]: i, "data-id": token.id, onclick: () => choose(key, i), onmouseenter: () => set({ [key]: i }) }, `${arrow}${token.text}`);
      chip.title = `${token.id}${token.bytes ? ` · ${token.bytes}` : ""}`;
      row.append(chip);
    });
    return row;
  }

  function choose(key, i) {
    const changes = { [key]: i };
    if (key === "source" && kinds.includes("cross") && state.kind === "causal") Object.assign(changes, chooseKind(look, "cross"));
    set(changes);
  }

  function drawStrips() {
    const rows = [];
    if (look.tokens.source && look.model.family === "encoder-decoder") rows.push(strip(word("reads"), look.tokens.source, "source", ""));
    if (look.model.family === "encoder") rows.push(strip(word("reads"), look.tokens.source, "token", ""));
    if (look.tokens.fed) rows.push(strip(word("fed"), look.tokens.fed, "token", ""));
    if (!look.label) rows.push(strip(word(look.model.family === "encoder" ? "predicts" : "writes"), look.tokens.written, "token", "→"));
    strips.replaceChildren(...rows);
  }

  function markStrips() {
    for (const key of ["source", "token"]) {
      for (const chip of strips.querySelectorAll(`[data-${key}]`)) chip.setAttribute("aria-pressed", String(Number(chip.getAttribute(`data-${key}`)) === state[key]));
    }
  }

  function changeTheme() {
    const theme = state.theme === "light" ? "dark" : "light";
    remembered("theme", theme);
    set({ theme });
  }

  function showHelp() {
    const rows = [["↑ ↓ ← →", "keyArrows"], ["[ ]", "keyLayer"], [", .", "keyHead"], ["k", "keyKind"], ["m", "keyMean"], ...(look.live ? [["x", "switchHead"]] : []), ["n l b s", "keyPanels"], ["g", "keyLanguage"], ["t", "keyTheme"], ["p", "keyProjector"], ["Esc", "keyEsc"]];
    help.replaceChildren(make("h2", {}, word("keys")), make("table", {}, ...rows.map(([keys, what]) => make("tr", {}, make("th", {}, keys), make("td", {}, word(what))))), make("button", { class: "choice", onclick: () => help.close() }, word("close")), make("p", { class: "note" }, look.notice));
    help.showModal();
  }

  listen((changes) => {
    const keys = Object.keys(changes);
    const light = keys.every((k) => ["token", "source"].includes(k));
    const everything = keys.some((k) => FRAME.includes(k));
    if (everything) { drawFrame(); drawStrips(); }
    markStrips();
    for (const panel of panels) {
      if (everything || keys.some((k) => TOUCHED[panel.name].includes(k))) panel.draw(light ? changes : null);
    }
  });
  if (bar) listen(bar.draw);

  function press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select")) return;
    const [layers, heads] = look.weights[state.kind].shape;
    const head = typeof state.head === "number" ? state.head : 0;
    const jump = (name) => { if (!shown.includes(name)) return; set({ panel: name }); document.getElementById(`panel-${name}`).focus(); document.getElementById(`panel-${name}`).scrollIntoView({ block: "nearest" }); };
    const actions = {
      "[": () => set({ layer: (state.layer + layers - 1) % layers }),
      "]": () => set({ layer: (state.layer + 1) % layers }),
      ",": () => set({ head: (head + heads - 1) % heads }),
      ".": () => set({ head: (head + 1) % heads }),
      k: () => set(chooseKind(look, kinds[(kinds.indexOf(state.kind) + 1) % kinds.length])),
      m: () => set({ head: state.head === "mean" ? "max" : "mean" }),
      x: () => look.live && typeof state.head === "number" && set({ off: toggled(headSwitch(state.kind, state.layer, state.head)) }),
      n: () => jump("next"), l: () => jump("layers"), b: () => jump("beam"), s: () => jump("shapes"), a: () => jump("attention"),
      g: () => set({ language: state.language === "en" ? "zh" : "en" }),
      t: changeTheme,
      p: () => set({ projector: !state.projector }),
      "?": showHelp,
      Escape: () => set({ node: null }),
    };
    if (actions[event.key]) actions[event.key]();
  }

  drawFrame();
  drawStrips();
  for (const panel of panels) panel.draw(null);
  return { press, resize: () => panels[0].draw(null) };
}

function clamp(look, kinds) {
  if (!kinds.includes(state.kind)) state.kind = kinds[kinds.length - 1];
  const [layers, heads] = look.weights[state.kind].shape;
  state.layer = Math.max(0, Math.min(layers - 1, state.layer));
  if (typeof state.head === "number") state.head = Math.max(0, Math.min(heads - 1, state.head));
  const places = look.label ? look.tokens.source : look.tokens.written;
  state.token = Math.max(0, Math.min(places.length - 1, state.token));
  state.source = Math.max(0, Math.min((look.tokens.source ?? look.tokens.written).length - 1, state.source));
  state.step = Math.min(state.step, look.walk.length - 1);
}

start().catch((error) => { document.body.append(make("p", { role: "alert" }, `This browser cannot show the page; try a newer one. 此浏览器无法显示本页，请换用较新的浏览器。 (${error})`)); });

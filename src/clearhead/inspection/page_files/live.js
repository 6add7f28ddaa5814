// Live only: the controls, and the questions to the source of the page's numbers.
import { state, set, word } from "./state.js";
import { packedFile, packedModule, prepared } from "./data.js";
import { make } from "./draw.js";
import { chosenCuts } from "./next.js";

const WAIT = 80; // milliseconds in which further changes join a request
const TEMPERATURES = [0, 0.2, 0.5, 0.8, 1, 1.2, 1.5, 2];

// The key is behind the # of the printed address; it goes out of sight, and stays for a reload.
function takeKey() {
  const given = location.hash.match(/^#key=([\w-]+)$/);
  if (given) history.replaceState(null, "", location.pathname);
  try {
    if (given) sessionStorage.setItem("clearhead.key", given[1]);
    return given ? given[1] : sessionStorage.getItem("clearhead.key") ?? "";
  } catch { return given ? given[1] : ""; }
}

// A source takes a question and promises a document: the server that has sent this page…
function serverSource() {
  const key = takeKey();
  return {
    silent: "noServer",
    ask: async (question, signal) => {
      const answer = await fetch("/api/look", { method: "POST", headers: { "content-type": "application/json", "x-clearhead-key": key }, body: JSON.stringify(question), signal });
      return answer.json();
    },
  };
}

// …or the model itself, which is fetched, or unpacked from this page, when it is first asked for.
function graphSource({ packed, megabytes }, say) {
  let model = null;
  const progress = (bytes) => say(packed ? word("unpacking") : word("loading").replace("{}", megabytes).replace("{}", Math.round(bytes / 1e6)));
  const load = async () => {
    const { openGraph } = await import(packed ? await packedModule("page/graph.js") : "./page/graph.js");
    return openGraph(progress, packed ? packedFile : undefined);
  };
  const open = () => {
    model ??= load();
    model.catch(() => { model = null; });
    return model;
  };
  return {
    silent: "noGraph",
    open,
    ask: async (question, signal) => {
      if (!model) progress(0);
      const opened = await open();
      try { return await opened.answer(question, signal); } catch (error) {
        if (!error.word) throw error;
        return { error: error.numbers.reduce((text, n) => text.replace("{}", n), word(error.word)) };
      }
    },
  };
}

export function liveBar(look, root, show) {
  const facts = look.live;
  const steps = [...facts.checkpoints, null];
  const encoder = look.model.family === "encoder";
  const ask = { text: facts.first.text, beam: look.beam ? look.beam.width : 1, temperature: facts.first.temperature, seed: 0, checkpoint: null };
  let number = 0, timer = null, running = null, off = state.off, replace = state.replace;

  const text = make("textarea", { id: "live-text", rows: 1, maxlength: facts.max_characters, autocomplete: "off", onkeydown: enter });
  text.value = ask.text;
  const run = make("button", { class: "choice", type: "submit" });
  const form = make("form", { onsubmit: (event) => { event.preventDefault(); request(); } }, text, run);
  const beam = make("select", { id: "live-beam", onchange: () => { ask.beam = Number(beam.value); if (ask.beam > 1) ask.temperature = 0; request(); } }, ...Array.from({ length: facts.max_beam }, (_, i) => make("option", { value: i + 1 })));
  const warmth = make("select", { id: "live-temperature", onchange: () => { ask.temperature = Number(warmth.value); if (ask.temperature) ask.beam = 1; request(); } }, ...TEMPERATURES.map((t) => make("option", { value: t })));
  const again = make("button", { class: "choice", type: "button", onclick: () => { ask.seed += 1; request(); } });
  const cuts = make("small", { class: "note" });
  const slider = make("input", { type: "range", id: "live-checkpoint", min: 0, max: steps.length - 1, step: 1, value: steps.length - 1, oninput: () => { ask.checkpoint = steps[Number(slider.value)]; request(); } });
  const reached = make("output");
  const said = make("p", { class: "said", role: "status" });
  const source = facts.graph ? graphSource(facts.graph, (text) => { if (said.textContent !== text) said.textContent = text; }) : serverSource();
  // Whoever goes to the controls is going to ask: the model is fetched meanwhile.
  if (source.open) root.addEventListener("focusin", () => source.open().then(() => { if (!running) said.textContent = ""; }, () => {}), { once: true });
  const labelled = (id, control, ...more) => make("span", { class: "control" }, make("label", { for: id }), control, ...more);
  const controls = [labelled("live-beam", beam), labelled("live-temperature", warmth, again), cuts];
  const checkpoints = labelled("live-checkpoint", slider, reached);
  root.append(form, ...(encoder ? [] : controls), ...(steps.length > 1 ? [checkpoints] : []), said);

  function draw() {
    text.setAttribute("aria-label", word("yourText"));
    run.textContent = word("run");
    again.textContent = word("drawAgain");
    again.hidden = !ask.temperature;
    cuts.hidden = !ask.temperature || !facts.graph;
    cuts.textContent = word("cutsToo");
    for (const [i, option] of [...beam.options].entries()) option.textContent = i ? String(i + 1) : word("greedy");
    for (const [i, option] of [...warmth.options].entries()) option.textContent = TEMPERATURES[i] ? String(TEMPERATURES[i]) : word("off");
    beam.value = ask.beam; warmth.value = ask.temperature;
    for (const [id, label] of [["live-beam", "width"], ["live-temperature", "draws"], ["live-checkpoint", "checkpoint"]]) {
      const found = root.querySelector(`label[for="${id}"]`);
      if (found) found.textContent = word(label);
    }
    reached.textContent = ask.checkpoint === null ? word("finalModel") : `${word("atStep")} ${ask.checkpoint.toLocaleString("en")}`;
    // Switches are thrown in the panels; here they are only noticed.
    if (off !== state.off || replace !== state.replace) {
      const matters = off !== state.off || state.off.length;
      off = state.off; replace = state.replace;
      if (matters) request();
    }
  }

  // Enter runs; with Shift it is a line end of the text. Enter that ends a word of Chinese is neither.
  function enter(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    request();
  }

  // The newest question wins: one that is under way is given up.
  function request() {
    ask.text = text.value;
    draw();
    clearTimeout(timer);
    timer = setTimeout(send, WAIT);
    root.dataset.asking = "true";
  }

  async function send() {
    running?.abort();
    running = new AbortController();
    const mine = ++number;
    said.textContent = word("asking");
    try {
      const body = { text: ask.text, seed: ask.seed, checkpoint: ask.checkpoint, off: state.off, replace: state.replace };
      if (facts.graph) Object.assign(body, chosenCuts());
      if (!encoder) Object.assign(body, { beam: ask.beam, temperature: ask.temperature, max_new: facts.first.max_new });
      const found = await source.ask(body, running.signal);
      if (mine !== number) return;
      if (found.error) { said.textContent = found.error; root.dataset.asking = "failed"; return; }
      said.textContent = "";
      show(Object.assign(prepared(found), { live: facts, notice: look.notice }));
      root.dataset.asking = "false";
    } catch (error) {
      if (error.name === "AbortError" || mine !== number) return;
      said.textContent = word(source.silent);
      root.dataset.asking = "failed";
    }
  }

  draw();
  return { draw };
}

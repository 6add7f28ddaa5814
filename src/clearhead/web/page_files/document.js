// One run of the graphs as the document that the page shows: what inspection/look.py makes in Python.
import { argmax, logSoftmax, logSumExp } from "./search.js";

const CANDIDATES = 100, BEST = 5;
const TEMPERATURES = Array.from({ length: 21 }, (_, i) => (i + 1) / 10);
const KINDS = ["self", "causal", "cross"];

// `run` is what one pass has given: attention, stages, lengths, shares, and a function from a stage's
// rows to logits. `text` is {source, fed, written, nGiven}.
export async function documentOf(model, text, run, tree) {
  const stages = run.stages.dims[0];
  const lens = emptyLens(stages, text.written.length);
  let logits = null;
  for (let stage = 0; stage < stages; stage++) {
    logits = await run.logitsOf(stage);
    logits.forEach((row, i) => readLens(lens, stage, i, row, text.written[i]));
  }
  return {
    ...common(model, text, run),
    text: model.decode(text.written.slice(text.nGiven)),
    log_prob: logProb(logits, text),
    first: Math.min(text.nGiven, text.written.length - 1),
    stream: { names: model.stream, added: f32(run.lengths.data, run.lengths.dims) },
    lens: { stages: model.stages, ...lens },
    attribution: run.shares ? { parts: model.parts, values: f32(run.shares.data, run.shares.dims) } : null,
    candidates: candidates(logits),
    beam: tree ? treeOf(model, tree) : null,
    labels: { target: model.labels.target },
  };
}

// What look.py's `look_label` makes: a label in the place of what is written.
export function labelDocument(model, text, run, scores, without) {
  const chances = logSoftmax(scores), best = argmax(scores);
  return {
    ...common(model, text, run),
    text: model.labels.target[best],
    log_prob: chances[best],
    label: { names: model.labels.target, probabilities: Array.from(chances, Math.exp), without },
  };
}

function common(model, text, run) {
  const attention = Object.fromEntries(KINDS.filter((kind) => run[kind]).map((kind) => [kind, f32(run[kind].data, run[kind].dims)]));
  const per = (make) => Object.fromEntries(Object.entries(attention).map(([kind, weights]) => [kind, make(weights)]));
  const size = (n) => (n === "source" ? text.source.length : n === "target" ? text.fed.length : n);
  return {
    format: "clearhead look 1",
    model: model.facts,
    tokens: tokensOf(model, text),
    attention,
    heads: per(headShares),
    suggested: per(sharpest),
    walk: model.walk.map((step) => ({ ...step, shape: step.shape.map(size) })),
  };
}

export function logProb(logits, text) {
  let sum = 0;
  for (let i = text.nGiven; i < text.written.length; i++) sum += logSoftmax(logits[i])[text.written[i]];
  return sum;
}

function f32(values, shape) { return { values, shape, scale: 1 }; }

function tokensOf(model, text) {
  const described = (ids, side, nGiven = 0) => ids.map((id, i) => ({ id, text: model.labels[side][id] ?? `⟨${id}⟩`, control: model.controls[side].includes(id), given: i < nGiven }));
  const found = { written: described(text.written, "target", text.nGiven) };
  if (text.source) found.source = described(text.source, "source");
  if (text.fed) found.fed = described(text.fed, "target");
  return found;
}

function emptyLens(stages, n) {
  return {
    ids: f32(new Uint32Array(stages * n * BEST), [stages, n, BEST]),
    probabilities: f32(new Float32Array(stages * n * BEST), [stages, n, BEST]),
    ranks: f32(new Uint32Array(stages * n), [stages, n]),
    own: f32(new Float32Array(stages * n), [stages, n]),
  };
}

function readLens(lens, stage, i, row, token) {
  const at = stage * lens.ids.shape[1] + i, sum = logSumExp(row);
  const probability = (id) => Math.exp(row[id] - sum);
  top(row, BEST).forEach((id, k) => {
    lens.ids.values[at * BEST + k] = id;
    lens.probabilities.values[at * BEST + k] = probability(id);
  });
  lens.own.values[at] = probability(token);
  let rank = 0;
  for (let id = 0; id < row.length; id++) if (row[id] > row[token]) rank++;
  lens.ranks.values[at] = rank;
}

// The n largest, falling; of equal ones, the lower id first.
function top(row, n) {
  const found = [];
  for (let id = 0; id < row.length; id++) {
    if (found.length === n && row[id] <= row[found[n - 1]]) continue;
    let place = found.length;
    while (place && row[found[place - 1]] < row[id]) place--;
    found.splice(place, 0, id);
    if (found.length > n) found.pop();
  }
  return found;
}

function candidates(logits) {
  const n = Math.min(CANDIDATES, logits[0].length), rows = logits.length;
  const ids = new Uint32Array(rows * n), values = new Float32Array(rows * n), sums = new Float32Array(rows * TEMPERATURES.length);
  logits.forEach((row, i) => {
    top(row, n).forEach((id, k) => { ids[i * n + k] = id; values[i * n + k] = row[id]; });
    TEMPERATURES.forEach((temperature, k) => { sums[i * TEMPERATURES.length + k] = logSumExp(row, temperature); });
  });
  return { temperatures: TEMPERATURES, ids: f32(ids, [rows, n]), logits: f32(values, [rows, n]), lse: f32(sums, [rows, TEMPERATURES.length]) };
}

// Means over the queries of each head: entropy, and the shares on some keys.
function headShares({ values, shape: [layers, heads, rows, columns] }) {
  const rounded = (x) => Math.round(x * 1e4) / 1e4;
  return Array.from({ length: layers }, (_, layer) => Array.from({ length: heads }, (_, head) => {
    const start = (layer * heads + head) * rows * columns;
    const sums = { entropy: 0, first: 0, same: 0, previous: 0 };
    for (let row = 0; row < rows; row++) {
      const at = start + row * columns;
      for (let column = 0; column < columns; column++) {
        const w = values[at + column];
        if (w > 0) sums.entropy -= w * Math.log(w);
      }
      sums.first += values[at];
      if (row < columns) sums.same += values[at + row];
      if (row && row - 1 < columns) sums.previous += values[at + row - 1];
    }
    return Object.fromEntries(Object.entries(sums).map(([name, sum]) => [name, rounded(sum / rows)]));
  }));
}

// The head to show first: the one that looks most sharply, the first token aside.
function sharpest({ values, shape: [layers, heads, rows, columns] }) {
  const sharp = new Float64Array(layers * heads);
  for (let each = 0; each < sharp.length; each++) {
    for (let row = 0; row < rows; row++) {
      const at = (each * rows + row) * columns;
      let most = columns > 1 ? 0 : values[at];
      for (let column = 1; column < columns; column++) most = Math.max(most, values[at + column]);
      sharp[each] += most;
    }
  }
  const place = argmax(sharp);
  return [Math.floor(place / heads), place % heads];
}

function treeOf(model, { width, nodes }) {
  const best = nodes.filter((node) => node.best && node.token !== null).map((node) => node.token);
  const label = (token) => (token === null ? "" : model.labels.target[token] ?? `⟨${token}⟩`);
  return { width, nodes: nodes.map((node) => ({ ...node, text: label(node.token) })), best_text: model.decode(best) };
}

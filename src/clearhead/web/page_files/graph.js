// The third source of the page's numbers: the model itself, as ONNX graphs in the browser.
import * as ort from "../runtime/ort.wasm.bundle.min.mjs";
import { readText } from "./tokens.js";
import { documentOf, labelDocument, logProb } from "./document.js";
import { argmax, beam, draw, greedy, logOdds, logSoftmax } from "./search.js";

const WEIGHTS = "weights.bin";
const ENGINE = "runtime/ort-wasm-simd-threaded.wasm";
const MAX_TOKENS = 128;

// What cannot be done; the page says it in its own language.
export class Refusal extends Error {
  constructor(word, ...numbers) {
    super(word);
    Object.assign(this, { word, numbers });
  }
}

// Opens the model and what runs it. `say` is given the number of bytes that are there; `read` promises
// a file of the exported folder.
export async function openGraph(say, read = fetched) {
  ort.env.wasm.numThreads = 1; // several need headers that a static host seldom sends
  let size = 0;
  const count = (more) => say(size += more);
  ort.env.wasm.wasmBinary = await counted(await read(ENGINE), count);
  ort.env.logLevel = "error";
  const facts = await (await read("model/model.json")).json();
  const weights = await counted(await read(`model/${WEIGHTS}`), count);
  const sessions = {};
  for (const name of facts.graphs) {
    const graph = new Uint8Array(await (await read(`model/${name}.onnx`)).arrayBuffer());
    sessions[name] = await ort.InferenceSession.create(graph, { executionProviders: ["wasm"], externalData: [{ path: WEIGHTS, data: weights }] });
  }
  const text = await readText(facts, async (name) => (await read(`model/${name}`)).json());
  return new GraphModel({ ...facts, ...text }, sessions);
}

async function fetched(path) {
  const answer = await fetch(new URL(`../${path}`, import.meta.url));
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer;
}

async function counted(answer, count) {
  const parts = [];
  for (const reader = answer.body.getReader(); ;) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    count(value.length);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

class GraphModel {
  constructor(model, sessions) {
    Object.assign(this, { model, sessions });
  }

  // A question as `play` sends it to its server → a document.
  async answer(asked, signal) {
    if (!asked.text.trim()) throw new Refusal("emptyText");
    if (this.model.decoding.kind === "classifier") return this.labelled(asked, signal);
    const on = this.switches([], null);
    const whole = await this.finish(asked, on, signal);
    if (!asked.off.length) return documentOf(this.model, whole.text, await this.pass(whole.text, on), whole.tree);
    const before = await this.pass(whole.text, on);
    const off = this.switches(asked.off, asked.replace === "mean" ? before : null);
    const without = await this.finish(asked, off, signal);
    const shown = await documentOf(this.model, without.text, await this.pass(without.text, off), without.tree);
    shown.effect = {
      off: asked.off,
      replace: asked.replace,
      text: this.model.decode(whole.text.written.slice(whole.text.nGiven)),
      log_prob: await this.scored(before, whole.text),
      log_prob_off: await this.scored(await this.pass(whole.text, off), whole.text),
    };
    return shown;
  }

  async scored(run, text) {
    return logProb(await run.logitsOf(run.stages.dims[0] - 1), text);
  }

  // Of a classifier: how likely each label is, and how far the log-odds of the likeliest fall without
  // each token; start and end, which every text has, stay.
  async labelled(asked, signal) {
    const text = { source: this.given(asked.text), fed: null, written: [], nGiven: 0 };
    const before = await this.pass(text, this.switches([], null));
    const switches = this.switches(asked.off, asked.replace === "mean" ? before : null);
    const run = await this.pass(text, switches), scores = await this.labelScores(run), best = argmax(scores);
    const without = text.source.map(() => 0);
    for (let place = 1; place < without.length - 1 && scores.length > 1; place++) {
      await new Promise((resume) => setTimeout(resume));
      signal?.throwIfAborted();
      const others = await this.pass({ ...text, source: text.source.toSpliced(place, 1) }, switches);
      without[place] = logOdds(scores, best) - logOdds(await this.labelScores(others), best);
    }
    const shown = labelDocument(this.model, text, run, scores, without);
    if (!asked.off.length) return shown;
    const whole = await this.labelScores(before), first = argmax(whole);
    shown.effect = { off: asked.off, replace: asked.replace, text: this.model.labels.target[first], log_prob: logSoftmax(whole)[first], log_prob_off: logSoftmax(scores)[first] };
    return shown;
  }

  // A label is decided from the vector of the first token alone.
  async labelScores({ stages }) {
    const [n, length, width] = stages.dims, at = (n - 1) * length * width;
    return (await this.logits(stages.data.slice(at, at + width), 1))[0];
  }

  given(text) {
    const tokens = this.model.encode(text), most = Math.min(MAX_TOKENS, this.model.decoding.longest);
    if (tokens.length > most) throw new Refusal("tooLong", tokens.length, most);
    return tokens;
  }

  // What the model reads and writes, and how the search went.
  async finish(asked, switches, signal) {
    const { kind, start, end, longest, maxNew } = this.model.decoding;
    const given = this.given(asked.text);
    if (kind === "encoder") return { text: await this.filled(given, switches) };
    const pairs = kind === "encoder-decoder";
    const source = pairs ? given : null, prompt = pairs ? [start] : given;
    const memory = pairs ? await this.memory(source, switches) : null;
    const next = async (written) => {
      await new Promise((resume) => setTimeout(resume)); // so that the page can answer, and ask anew
      signal?.throwIfAborted();
      return this.lastLogits([...prompt, ...written], memory, switches);
    };
    const limits = { limit: Math.min(asked.max_new ?? maxNew, longest - prompt.length), end };
    let tokens, tree = null;
    if (asked.temperature) {
      const choice = { temperature: asked.temperature, topK: asked.top_k ?? null, topP: asked.top_p ?? 1, minP: asked.min_p ?? 0 };
      tokens = await draw(next, limits, choice, BigInt(asked.seed) * 2n ** 32n + 1n);
    } else if (asked.beam > 1) {
      const found = await beam(next, limits, asked.beam);
      tokens = found.tokens;
      tree = { width: asked.beam, nodes: found.nodes };
    } else {
      tokens = await greedy(next, limits);
    }
    if (pairs) return { text: { source, fed: [start, ...tokens.slice(0, -1)], written: tokens, nGiven: 0 }, tree };
    const all = [...prompt, ...tokens];
    if (all.length < 2) throw new Refusal("tooShort");
    return { text: { source: null, fed: all.slice(0, -1), written: all.slice(1), nGiven: prompt.length - 1 }, tree };
  }

  async filled(source, switches) {
    const text = { source, fed: null, written: source, nGiven: 0 };
    const run = await this.pass(text, switches);
    const logits = await run.logitsOf(run.stages.dims[0] - 1);
    return { ...text, written: logits.map((row) => argmax(row)) };
  }

  async memory(source, switches) {
    return (await this.tower("encoder", source, switches)).memory;
  }

  async lastLogits(tokens, memory, switches) {
    const { stages } = await this.tower("decoder", tokens, switches, memory);
    const [n, length, width] = stages.dims;
    const at = ((n - 1) * length + length - 1) * width;
    return (await this.logits(stages.data.slice(at, at + width), 1))[0];
  }

  // Everything that the page shows of one text.
  async pass(text, switches) {
    const encoder = this.sessions.encoder && text.source ? await this.tower("encoder", text.source, switches) : null;
    const decoder = text.fed ? await this.tower("decoder", text.fed, switches, encoder?.memory, text.written) : null;
    const run = { ...encoder, ...decoder, means: { encoder, decoder } };
    const [, length, width] = run.stages.dims;
    run.logitsOf = (stage) => this.logits(run.stages.data.slice(stage * length * width, (stage + 1) * length * width), length);
    return run;
  }

  async tower(name, tokens, switches, memory, written) {
    const session = this.sessions[name];
    const ids = (list) => new ort.Tensor("int64", BigInt64Array.from(list, BigInt), [1, list.length]);
    const feeds = { tokens: ids(tokens), ...switches[name] };
    if (memory) feeds.memory = memory;
    if (session.inputNames.includes("written")) feeds.written = ids(written ?? tokens);
    return session.run(feeds);
  }

  async logits(rows, n) {
    const width = rows.length / n;
    const { logits } = await this.sessions.output.run({ rows: new ort.Tensor("float32", rows, [n, width]) });
    const size = logits.dims[1];
    return Array.from({ length: n }, (_, i) => logits.data.subarray(i * size, (i + 1) * size));
  }

  // The switches of all towers; `run` is where means are taken, null: zeros.
  switches(off, run) {
    return Object.fromEntries(Object.entries(this.model.towers).map(([name, tower]) => {
      const { attentions, sublayers, heads, headWidth, width } = tower;
      const headsOn = new Uint8Array(attentions.length * heads).fill(1), addedOn = new Uint8Array(sublayers.length).fill(1);
      for (const each of off) {
        const [place, head] = each.split(":");
        if (head === undefined) { const i = sublayers.indexOf(each); if (i >= 0) addedOn[i] = 0; }
        else { const i = attentions.indexOf(place); if (i >= 0) headsOn[i * heads + Number(head)] = 0; }
      }
      const means = run?.means[name];
      return [name, {
        heads_on: new ort.Tensor("bool", headsOn, [attentions.length, heads]),
        heads_value: means?.heads_mean ?? new ort.Tensor("float32", new Float32Array(attentions.length * heads * headWidth), [attentions.length, heads, headWidth]),
        added_on: new ort.Tensor("bool", addedOn, [sublayers.length]),
        added_value: means?.added_mean ?? new ort.Tensor("float32", new Float32Array(sublayers.length * width), [sublayers.length, width]),
      }];
    }));
  }
}

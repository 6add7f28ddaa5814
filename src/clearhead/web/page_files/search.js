// From logits to tokens, by the rules of clearhead's decoding: greedy, beam and drawn. A test gives
// both the same logits. `next(tokens)` promises the logits that follow the tokens written so far.

export async function greedy(next, { limit, end }) {
  const tokens = [];
  while (tokens.length < limit) {
    tokens.push(argmax(await next(tokens)));
    if (tokens.at(-1) === end) break;
  }
  return tokens;
}

// `seed` is Python's: the same seed draws the same text.
export async function draw(next, { limit, end }, choice, seed) {
  const tokens = [];
  while (tokens.length < limit) {
    const chances = probabilities(await next(tokens), choice);
    tokens.push(drawn(chances, uniform(`${seed}/${tokens.length}/token`)));
    if (tokens.at(-1) === end) break;
  }
  return tokens;
}

// All continuations of all hypotheses are ranked; an end among the `width` best is a finished text,
// the best `width` others stay. The score is the sum of log-probabilities over the length.
export async function beam(next, { limit, end }, width) {
  const nodes = [{ id: 0, parent: null, token: null, log_prob: 0, total: 0, fate: "kept" }];
  const finished = [];
  let slots = [{ tokens: [], total: 0, node: 0 }];
  for (let length = 1; slots.length && length <= limit; length++) {
    const rows = [];
    for (const slot of slots) rows.push(logSoftmax(await next(slot.tokens)));
    const before = slots;
    slots = [];
    best(rows, before, 2 * width).forEach(({ slot, token, log_prob }, place) => {
      const old = before[slot], total = old.total + log_prob;
      const node = { id: nodes.length, parent: old.node, token, log_prob, total, fate: "dropped" };
      nodes.push(node);
      if (slots.length >= width) return;
      const tokens = [...old.tokens, token];
      if (token !== end && length < limit) {
        node.fate = "kept";
        slots.push({ tokens, total, node: node.id });
      } else if (place < width) {
        Object.assign(node, { fate: "finished", divisor: length, score: total / length });
        finished.push({ tokens, score: node.score, node: node.id });
      }
    });
    if (isSettled(finished, slots, width, limit)) break;
  }
  const first = finished.reduce((a, b) => (b.score > a.score ? b : a), finished[0] ?? { tokens: [], node: 0 });
  for (let at = first.node; at !== null; at = nodes[at].parent) nodes[at].best = true;
  return { tokens: first.tokens, nodes };
}

// No unfinished text can still win: each further token costs, and the longest has the largest divisor.
function isSettled(finished, slots, width, limit) {
  if (!slots.length) return true;
  if (!finished.length) return false;
  if (finished.length >= width) return true;
  return Math.max(...finished.map((text) => text.score)) >= Math.max(...slots.map((slot) => slot.total)) / limit;
}

// The n best of all rows; of equal ones, that of the better hypothesis, then that with the lower id.
function best(rows, slots, n) {
  const found = [];
  rows.forEach((row, slot) => {
    for (let token = 0; token < row.length; token++) {
      const value = slots[slot].total + row[token];
      if (found.length === n && value <= found[n - 1].value) continue;
      let place = found.length;
      while (place && found[place - 1].value < value) place--;
      found.splice(place, 0, { value, slot, token, log_prob: row[token] });
      if (found.length > n) found.pop();
    }
  });
  return found;
}

export function argmax(row) {
  let place = 0;
  for (let i = 1; i < row.length; i++) if (row[i] > row[place]) place = i;
  return place;
}

export function logSumExp(row, temperature = 1) {
  const top = row[argmax(row)];
  let sum = 0;
  for (let i = 0; i < row.length; i++) sum += Math.exp((row[i] - top) / temperature);
  return top / temperature + Math.log(sum);
}

export function logSoftmax(row) {
  const all = logSumExp(row);
  return Float64Array.from(row, (x) => x - all);
}

// Of one against all others.
export function logOdds(row, place) {
  return row[place] - logSumExp(row.filter((_, i) => i !== place));
}

// The chance of each token: temperature, then top-k, top-p and min-p, each of what the last has left.
export function probabilities(logits, { temperature, topK = null, topP = 1, minP = 0 }) {
  const n = logits.length, top = logits[argmax(logits)];
  const scaled = Float64Array.from(logits, (x) => (x - top) / temperature);
  if (topK !== null && topK < n) {
    const least = Float64Array.from(scaled).sort()[n - topK];
    for (let i = 0; i < n; i++) if (scaled[i] < least) scaled[i] = -Infinity;
  }
  let chances = normalised(scaled.map(Math.exp));
  if (topP < 1) {
    const order = Array.from(chances.keys()).sort((a, b) => chances[b] - chances[a] || a - b);
    let before = 0;
    for (const i of order) {
      const own = chances[i];
      if (before >= topP) chances[i] = 0;
      before += own;
    }
    chances = normalised(chances);
  }
  if (minP > 0) {
    const least = minP * chances[argmax(chances)];
    chances = normalised(chances.map((x) => (x < least ? 0 : x)));
  }
  return chances;
}

function normalised(chances) {
  const sum = chances.reduce((a, b) => a + b, 0);
  return chances.map((x) => x / sum);
}

// Where a number from 0 to 1 falls in the cumulated chances.
export function drawn(chances, number) {
  const total = chances.reduce((a, b) => a + b, 0);
  let sum = 0, last = 0;
  for (let i = 0; i < chances.length; i++) {
    if (!chances[i]) continue;
    sum += chances[i];
    last = i;
    if (sum > number * total) return i;
  }
  return last;
}

// ── Python's random numbers: the first 8 bytes of BLAKE2b of a key ───────────────────────────────

const WORD = (1n << 64n) - 1n;
const START = [0x6a09e667f3bcc908n, 0xbb67ae8584caa73bn, 0x3c6ef372fe94f82bn, 0xa54ff53a5f1d36f1n, 0x510e527fade682d1n, 0x9b05688c2b3e6c1fn, 0x1f83d9abfb41bd6bn, 0x5be0cd19137e2179n];
const ORDERS = ["0123456789abcdef", "ea489fd61c02b753", "b8c052fdae367194", "7931dcbe265a40f8", "905724afe1bc683d", "2c6a0b834d75fe19", "c51fed4a0763928b", "db7ec13950f4862a", "6fe9b308c2d714a5", "a2847615fb9e3cd0"];

export function uniform(key) {
  const bytes = new TextEncoder().encode(key);
  if (bytes.length > 128) throw new Error("a key has at most 128 bytes");
  const block = new DataView(new ArrayBuffer(128));
  bytes.forEach((byte, i) => block.setUint8(i, byte));
  const m = Array.from({ length: 16 }, (_, i) => block.getBigUint64(8 * i, true));
  const h = [...START];
  h[0] ^= 0x01010008n; // no key, 8 bytes of digest
  const v = [...h, ...START];
  v[12] ^= BigInt(bytes.length);
  v[14] ^= WORD;
  const turn = (x, n) => ((x >> n) | (x << (64n - n))) & WORD;
  const mix = (a, b, c, d, x, y) => {
    v[a] = (v[a] + v[b] + x) & WORD; v[d] = turn(v[d] ^ v[a], 32n);
    v[c] = (v[c] + v[d]) & WORD; v[b] = turn(v[b] ^ v[c], 24n);
    v[a] = (v[a] + v[b] + y) & WORD; v[d] = turn(v[d] ^ v[a], 16n);
    v[c] = (v[c] + v[d]) & WORD; v[b] = turn(v[b] ^ v[c], 63n);
  };
  for (let round = 0; round < 12; round++) {
    const s = Array.from(ORDERS[round % 10], (digit) => m[parseInt(digit, 16)]);
    for (let i = 0; i < 4; i++) mix(i, 4 + i, 8 + i, 12 + i, s[2 * i], s[2 * i + 1]);
    for (let i = 0; i < 4; i++) mix(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, s[8 + 2 * i], s[9 + 2 * i]);
  }
  const digest = h[0] ^ v[0] ^ v[8];
  return (Number(digest) / 2 ** 64) * (1 - 2 ** -53);
}

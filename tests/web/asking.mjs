// Runs a search of the page, and asks the test for the logits that follow each text.
import { createInterface } from "node:readline";
import { beam, draw, greedy, probabilities } from "./page/search.js";

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const read = async () => JSON.parse((await lines.next()).value);
const write = (value) => console.log(JSON.stringify(value));
const next = async (tokens) => { write({ next: tokens }); return Float32Array.from(await read()); };

for (;;) {
  const { what, limits, width, choice, seed, logits } = await read();
  if (what === "end") break;
  if (what === "greedy") write({ found: await greedy(next, limits) });
  if (what === "beam") write({ found: await beam(next, limits, width) });
  if (what === "draw") write({ found: await draw(next, limits, choice, BigInt(seed)) });
  if (what === "chances") write({ found: Array.from(probabilities(Float32Array.from(logits), choice)) });
}
process.exit(0);

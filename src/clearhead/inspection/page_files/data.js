// The document: tensors are base64, little-endian, as their dtype says; or, from a graph in this
// browser, the values themselves.
const SIZES = { f32: Float32Array, u32: Uint32Array, u16: Uint16Array, u8: Uint8Array };
const SCALES = { u16: 65535, u8: 255 };

export function tensor(stored) {
  if (stored.values) return stored;
  const text = atob(stored.base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const raw = new SIZES[stored.dtype](bytes.buffer);
  const scale = SCALES[stored.dtype] ?? 1;
  return { shape: stored.shape, values: raw, scale };
}

// (layers, heads, rows, columns)
export function weightsOf(attention, layer, head) {
  const [, heads, rows, columns] = attention.shape;
  const size = rows * columns;
  const out = new Float64Array(size);
  const take = (h, f) => {
    const start = (layer * heads + h) * size;
    for (let i = 0; i < size; i++) f(i, attention.values[start + i] / attention.scale);
  };
  if (head === "mean") {
    for (let h = 0; h < heads; h++) take(h, (i, x) => { out[i] += x / heads; });
  } else if (head === "max") {
    for (let h = 0; h < heads; h++) take(h, (i, x) => { if (x > out[i]) out[i] = x; });
  } else {
    take(head, (i, x) => { out[i] = x; });
  }
  return { rows, columns, values: out };
}

export async function readDocument() {
  const element = document.getElementById("look");
  return prepared(element.dataset.packed ? await unpacked(element).json() : JSON.parse(element.textContent));
}

// What an element holds as base64 of gzip.
function unpacked(element) {
  const bytes = Uint8Array.from(atob(element.textContent), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
}

// A page that is one file holds the model and what runs it, each file in an element.
export async function packedFile(path) {
  return unpacked(document.getElementById(`file:${path}`));
}

// The address of a module in the page; the modules that it imports get addresses before it.
const addresses = {};
export async function packedModule(path) {
  if (addresses[path]) return addresses[path];
  let text = await (await packedFile(path)).text();
  for (const [line, name] of text.matchAll(/^import .* from "(\.[^"]+)";$/gm)) {
    const inner = new URL(name, `file:///${path}`).pathname.slice(1);
    text = text.replace(line, line.replace(name, await packedModule(inner)));
  }
  return addresses[path] = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
}

export function prepared(look) {
  if (look.format !== "clearhead look 1") throw new Error(`unknown format ${look.format}`);
  look.weights = {};
  for (const [kind, stored] of Object.entries(look.attention)) look.weights[kind] = tensor(stored);
  return look;
}

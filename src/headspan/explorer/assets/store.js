"use strict";
/* The page's data: blocks of base64 or JSON, found by the hash of their content and read when they are first used. */
const headspan = {};
headspan.store = (() => {
  const types = {
    i1: Int8Array, u1: Uint8Array, i2: Int16Array, u2: Uint16Array, i4: Int32Array, u4: Uint32Array,
    f4: Float32Array, f8: Float64Array,
  };
  const read = new Map();

  function bytes(text) {
    const raw = atob(text);
    const found = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) found[i] = raw.charCodeAt(i);
    return found.buffer;
  }

  function block(id) {
    if (!read.has(id)) {
      const element = document.getElementById(`d-${id}`);
      const dtype = element.dataset.dtype;
      read.set(id, dtype ? new types[dtype](bytes(element.textContent)) : JSON.parse(element.textContent));
    }
    return read.get(id);
  }

  /* A flat array as arrays of arrays; the innermost ones are views of the same numbers. */
  function shaped(flat, shape) {
    if (shape.length === 1) return flat;
    const step = flat.length / shape[0];
    return Array.from({length: shape[0]}, (_, i) => shaped(flat.subarray(i * step, (i + 1) * step), shape.slice(1)));
  }

  /* `value` with every reference replaced by what it refers to. */
  function resolved(value) {
    if (Array.isArray(value)) return value.some((part) => typeof part === "object") ? value.map(resolved) : value;
    if (value === null || typeof value !== "object") return value;
    if ("@" in value) return value.shape ? shaped(block(value["@"]), value.shape.split(",").map(Number)) : block(value["@"]);
    return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, resolved(part)]));
  }

  return {resolved};
})();

"use strict";
/* The data: arrays and lists, found by the hash of their content and read when they are first used. They come in archives
   (`explorer/store.py`), which the home of the component unpacks: the page, or a notebook. */
headspan.store = (() => {
  const types = {
    i1: Int8Array, u1: Uint8Array, i2: Int16Array, u2: Uint16Array, i4: Int32Array, u4: Uint32Array,
    f4: Float32Array, f8: Float64Array,
  };
  const places = new Map();
  const read = new Map();

  /* Bytes of numbers stand sorted by significance, which packs better. */
  function restored(bytes, size) {
    const found = new Uint8Array(bytes.length), count = bytes.length / size;
    for (let byte = 0; byte < size; byte++)
      for (let i = 0; i < count; i++) found[i * size + byte] = bytes[byte * count + i];
    return found.buffer;
  }

  function block(id) {
    if (!read.has(id)) {
      const {bytes, dtype} = places.get(id);
      read.set(id, dtype === "json" ? JSON.parse(new TextDecoder().decode(bytes))
        : new types[dtype](restored(bytes, types[dtype].BYTES_PER_ELEMENT)));
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

  const unpacked = new Map();
  /* Make an archive's arrays known; done once. */
  function open(name) {
    if (!unpacked.has(name)) unpacked.set(name, headspan.home.archive(name).then((archive) => {
      if (archive === null) return;
      let at = 0;
      for (const [id, dtype, length] of archive.index) {
        places.set(id, {dtype, bytes: archive.bytes.subarray(at, at + length)});
        at += length;
      }
    }));
    return unpacked.get(name);
  }

  return {resolved, open};
})();

"use strict";
/* Names of nodes: L4H7, L4K3 for a kv head of a model whose heads share keys and values, and whatever else a diagram has
   (an MLP, the embedding, the logits), by the names of the payload. */
headspan.labels = (() => {
  const {layers, heads, kv_heads: kvHeads} = headspan.record.heads;
  const grouped = kvHeads < heads;
  const others = new Map((headspan.record.nodes ?? []).map((node) => [node.id, node]));

  function read(text) {
    if (others.has(text)) return {layer: others.get(text).layer, head: 0, kv: false, label: text, kind: others.get(text).kind};
    const found = /^\s*(?:l(\d+)\s*([hk])\s*(\d+)|(\d+)[.,](\d+))\s*$/i.exec(text);
    if (!found) return null;
    const kv = (found[2] || "h").toLowerCase() === "k";
    const layer = Number(found[1] ?? found[4]);
    const head = Number(found[3] ?? found[5]);
    const known = layers.includes(layer) && head < (kv ? kvHeads : heads) && (!kv || grouped);
    return known ? {layer, head, kv, label: `L${layer}${kv ? "K" : "H"}${head}`, kind: kv ? "kv" : "head"} : null;
  }

  const all = layers.flatMap((layer) => Array.from({length: heads}, (_, head) => `L${layer}H${head}`));
  const kvs = grouped ? layers.flatMap((layer) => Array.from({length: kvHeads}, (_, head) => `L${layer}K${head}`)) : [];

  /* The head `dx` to the right and `dy` layers up; at an edge the one that is there. */
  function neighbor(label, dx, dy) {
    const {layer, head, kv, kind} = read(label);
    const clamp = (value, top) => Math.max(0, Math.min(top, value));
    if (kind !== "head" && kind !== "kv") return label;
    const place = clamp(layers.indexOf(layer) + dy, layers.length - 1);
    return `L${layers[place]}${kv ? "K" : "H"}${clamp(head + dx, (kv ? kvHeads : heads) - 1)}`;
  }

  /* The kv head whose keys and values a head reads, and the heads that read a kv head. */
  const group = heads / kvHeads;
  const keyOf = (label) => {
    const {layer, head} = read(label);
    return `L${layer}K${Math.floor(head / group)}`;
  };
  const readers = (label) => {
    const {layer, head} = read(label);
    return Array.from({length: group}, (_, i) => `L${layer}H${head * group + i}`);
  };

  /* Where messages to a node arrive: at itself, and at the kv head whose keys and values it reads. */
  const ends = (label) => (grouped && read(label).kind === "head" ? [label, keyOf(label)] : [label]);

  /* Heads that a text names, in order. */
  const named = (text) => [...text.matchAll(/\bL\d+[HK]\d+\b/g)].map((found) => found[0]).filter((label) => read(label));

  return {read, all, kvs, others: [...others.values()], neighbor, keyOf, readers, ends, named, grouped};
})();

"use strict";
/* Which pairs a diagram draws: the tiers that are on, among what the filters leave; with pinned heads only what lies
   between them; a path from one head to another. */
headspan.graph = (() => {
  const MOST = 2000, WITHOUT_TIERS = 60, MORE = 500;
  const {TIERS} = headspan.state;

  /* Nodes whose edges are wanted, as codes of a side; null where all are. */
  function allowed(view, side) {
    if (!view.classes.length) return null;
    const sets = headspan.sets.all(view);
    const members = new Set(view.classes.flatMap((name) => sets.get(name) ?? []).flatMap(headspan.labels.ends));
    return side.values.map((label) => members.has(label));
  }

  const kindShown = (view, side) => side.values.map((label) => {
    const kind = headspan.labels.read(label)?.kind;
    return kind === "head" || kind === "kv" || view.kinds.includes(kind);
  });

  function pinned(view, side) {
    if (!view.pins.length) return null;
    const members = new Set(view.pins.flatMap(headspan.labels.ends));
    return side.values.map((label) => members.has(label));
  }

  /* Tests of rows besides the filters of `pairs`. */
  function wanted(view, metric) {
    const {src, dst, tier, graphNull} = headspan.pairs;
    const [fromClass, toClass] = [allowed(view, src), allowed(view, dst)];
    const [fromKind, toKind] = [kindShown(view, src), kindShown(view, dst)];
    const [fromPin, toPin] = [pinned(view, src), pinned(view, dst)];
    const tiers = new Set(view.tiers.map((name) => TIERS[name]));
    const ends = view.head ? headspan.labels.ends(view.head) : [];
    return (i) => {
      const [from, to] = [src.codes[i], dst.codes[i]];
      if (!(fromKind[from] && toKind[to]) || (graphNull && !tiers.has(tier(i, metric)))) return false;
      if (fromClass && !(fromClass[from] || toClass[to])) return false;
      if (fromPin && (view.pins.length > 1 ? !(fromPin[from] && toPin[to]) : !(fromPin[from] || toPin[to]))) return false;
      if (view.head && view.way === "in") return ends.includes(dst.values[to]);
      if (view.head && view.way === "out") return src.values[from] === view.head;
      return true;
    };
  }

  /* Edges that begin or end at nodes besides heads, strongest first, of those that `wanted` takes. */
  function moreRows(most, wanted) {
    const about = headspan.record.more;
    if (!about) return [];
    const column = (name) => headspan.tables.column(about.table, name);
    const [src, dst, relation, tier, score, expected, p, q] = ["src", "dst", "relation", "tier", "score", "expected", "p", "q"].map(column);
    const value = (from, i) => from?.at(i) ?? NaN, found = [];
    for (let i = 0; i < headspan.tables.table(about.table).length && found.length < most; i++) {
      const edge = {row: -1 - i, src: src.at(i), dst: dst.at(i), pairing: relation.at(i), score: score.at(i), expected: value(expected, i),
        q: value(q, i), tier: tier.at(i) ?? "", words: about.words,
        nulls: [{name: "expected", expected: value(expected, i), p: value(p, i), q: value(q, i)}]};
      if (wanted(edge)) found.push(edge);
    }
    return found;
  }

  function moreEdges(view) {
    if (!view.kinds.length) return [];
    const tiers = new Set([...view.tiers.map((name) => TIERS[name]), ""]);
    const shown = (label) => {
      const {kind, layer} = headspan.labels.read(label) ?? {};
      const isHead = kind === "head" || kind === "kv";
      return (isHead || view.kinds.includes(kind)) && (layer === null || (view.layers[0] <= layer && layer <= view.layers[1]));
    };
    return moreRows(MORE, (edge) => tiers.has(edge.tier) && shown(edge.src) && shown(edge.dst) && (view.q === null || edge.q <= view.q));
  }

  /* The edges of a diagram, weakest first, and how many were left out because there are too many to draw. */
  const kept = new Map();
  function edges(view, metric = view.metric) {
    // Choosing a head changes what is in front, not what is there, unless only its own pairs are asked for.
    const {head, with: other, at, path: way, ...rest} = view;
    const key = JSON.stringify([metric, rest, view.way === "both" ? null : head]);
    if (!kept.has(key)) {
      if (kept.size > 12) kept.clear();
      kept.set(key, found(view, metric));
    }
    return kept.get(key);
  }

  function found(view, metric) {
    if (!headspan.pairs) return {edges: [], left: 0};
    const most = headspan.pairs.graphNull ? MOST : WITHOUT_TIERS * Math.max(1, view.pairings.length) / 3;
    const rows = headspan.pairs.strongestRows(view, Infinity, wanted(view, metric), metric);
    return {edges: [...moreEdges(view), ...rows.slice(0, most).reverse().map((i) => headspan.pairs.pair(i, metric))],
      left: Math.max(0, rows.length - most)};
  }

  /* The path from one head to another whose weakest pair is strongest against what is expected of it. Layers only go up,
     so nodes are settled layer by layer; a kv head hands on to the heads that read it. */
  function path(list, [from, to]) {
    const best = new Map([[from, {weakest: Infinity, hops: 0, via: null}]]);
    const strength = (edge) => edge.score / edge.expected;
    const layer = (label) => headspan.labels.read(label).layer;
    const owners = (label) => (headspan.labels.read(label).kv ? headspan.labels.readers(label) : [label]);
    for (const edge of [...list].sort((a, b) => layer(a.src) - layer(b.src) || layer(a.dst) - layer(b.dst))) {
      const before = best.get(edge.src);
      if (!before) continue;
      const here = {weakest: Math.min(before.weakest, strength(edge)), hops: before.hops + 1, via: edge};
      for (const label of owners(edge.dst)) {
        const known = best.get(label);
        if (!known || here.weakest > known.weakest || (here.weakest === known.weakest && here.hops < known.hops)) best.set(label, here);
      }
    }
    const found = [];
    for (let at = best.get(to); at?.via; at = best.get(at.via.src)) found.unshift(at.via);
    return found;
  }

  return {edges, path, moreRows};
})();

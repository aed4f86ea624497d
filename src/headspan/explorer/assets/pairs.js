"use strict";
/* Pairs of nodes: who writes to whom, with score, expected value and tier, among those that the filters leave. Rows are
   those of the table of pairs; filters look at codes, not at names, so that a hundred thousand rows are quick. */
headspan.pairs = (() => {
  const about = headspan.record.pairs;
  if (!about) return null;
  const table = about.table, length = headspan.tables.table(table).length;
  const column = (name) => headspan.tables.column(table, name);
  const src = column("src"), dst = column("dst"), pairing = column("pairing");
  const metrics = Object.keys(about.metrics);
  const plain = (name) => {
    const found = column(name);
    return found && Float64Array.from({length}, (_, i) => found.at(i));
  };
  const made = new Map();
  const once = (key, make) => made.get(key) ?? made.set(key, make()).get(key);
  const scores = (metric) => once(`score ${metric}`, () => plain(metric));
  const tierColumn = (metric) => once(`tier ${metric}`, () => column(`${metric}_tier`));
  const qs = (metric) => once(`q ${metric}`, () => (about.graph_null ? plain(`${metric}_q_${about.graph_null}`) : null));
  const layerOf = once("layers", () => {
    const of = (side) => side.values.map((label) => headspan.labels.read(label)?.layer ?? 0);
    return {src: of(src), dst: of(dst)};
  });

  /* Row of a pair; undefined where the page does not carry it. */
  function row(through, from, to) {
    const rows = once("rows", () => new Map(Array.from({length}, (_, i) => [`${pairing.at(i)} ${src.at(i)} ${dst.at(i)}`, i])));
    return rows.get(`${through} ${from} ${to}`);
  }

  /* Which rows a view leaves: by pairing, layers, least score and largest q; tiers are asked separately. */
  function keeper(view, metric = view.metric) {
    const wanted = pairing.values.map((name) => view.pairings.includes(name));
    const inside = (layer) => view.layers[0] <= layer && layer <= view.layers[1];
    const from = layerOf.src.map(inside), to = layerOf.dst.map(inside);
    const least = metric === view.metric ? view.min : null, score = scores(metric), q = view.q === null ? null : qs(metric);
    return (i) => wanted[pairing.codes[i]] && from[src.codes[i]] && to[dst.codes[i]]
      && (least === null || score[i] >= least) && (q === null || q[i] <= view.q);
  }
  const kept = (i, view) => once("keeper", () => new WeakMap()).get(view)?.(i) ?? remembered(view)(i);
  function remembered(view) {
    const found = keeper(view);
    made.get("keeper").set(view, found);
    return found;
  }

  const tier = (i, metric) => tierColumn(metric)?.at(i) ?? "";

  function pair(i, metric) {
    const value = (suffix) => column(`${metric}_${suffix}`)?.at(i) ?? NaN;
    const nulls = about.nulls.map((name) => (
      {name, expected: value(`null_${name}`), p: value(`p_${name}`), q: value(`q_${name}`)})).filter((one) => !Number.isNaN(one.p));
    const {expected, q} = nulls[0] ?? {expected: NaN, q: NaN};
    return {row: i, src: src.at(i), dst: dst.at(i), pairing: pairing.at(i), score: scores(metric)[i], expected, q, nulls,
      tier: tier(i, metric)};
  }

  /* Of the rows that `wanted` takes and the filters leave, the `count` strongest by the metric, strongest first. */
  function strongestRows(view, count, wanted = () => true, metric = view.metric) {
    const score = scores(metric), keeps = keeper(view, metric);
    const found = [], take = (i) => { if (keeps(i) && wanted(i) && score[i] === score[i]) found.push(i); };
    if (wanted.rows) for (const i of wanted.rows) take(i);
    else for (let i = 0; i < length; i++) take(i);
    found.sort((a, b) => score[b] - score[a] || a - b);
    return found.slice(0, count);
  }
  const strongest = (view, count, wanted, metric = view.metric) =>
    strongestRows(view, count, wanted, metric).map((i) => pair(i, metric));

  /* Scores through one pairing, and all pairs with what is above random subspaces, among those that the filters leave. */
  function* scoresThrough(name, metric, view) {
    const score = scores(metric);
    for (let i = 0; i < length; i++) if (pairing.at(i) === name && kept(i, view) && score[i] === score[i]) yield score[i];
  }
  function* excesses(metric, view) {
    const expected = column(`${metric}_null_haar`), score = scores(metric);
    for (let i = 0; i < length; i++)
      if (kept(i, view) && score[i] === score[i])
        yield {src: src.at(i), dst: dst.at(i), pairing: pairing.at(i), excess: score[i] - expected.at(i)};
  }

  /* Rows with one of these labels on a side; they are listed once for all labels, so that no click goes through all rows. */
  function at(name, side, labels) {
    const listed = once(`rows ${name}`, () => {
      const found = side.values.map(() => []);
      for (let i = 0; i < length; i++) found[side.codes[i]].push(i);
      return found;
    });
    const codes = new Set(labels.map((label) => side.values.indexOf(label)));
    return Object.assign((i) => codes.has(side.codes[i]), {rows: [...codes].flatMap((code) => listed[code] ?? [])});
  }
  const into = (labels) => at("dst", dst, labels);
  const outOf = (label) => at("src", src, [label]);
  const between = (a, b) => (i) => (src.at(i) === a && dst.at(i) === b) || (src.at(i) === b && dst.at(i) === a);

  /* How many pairs of each tier the filters leave; of a page with the strongest pairs alone, those of the model where only
     pairings are filtered. */
  function tally(view, metric = view.metric) {
    const key = `tally ${JSON.stringify([metric, view.metric, view.pairings, view.layers, view.min, view.q])}`;
    return once(key, () => counted(view, metric));
  }
  function counted(view, metric) {
    const found = {"strong": 0, "stands out": 0, "background": 0, "": 0}, plainView = view.min === null && view.q === null
      && view.layers.join() === [headspan.record.heads.layers[0], headspan.record.heads.layers.at(-1)].join();
    if (!about.whole && plainView && about.counts?.[metric]) {
      for (const name of view.pairings)
        for (const [key, count] of Object.entries(about.counts[metric][name] ?? {})) found[key] += count;
      return found;
    }
    const keeps = keeper(view, metric);
    for (let i = 0; i < length; i++) if (keeps(i)) found[tier(i, metric)]++;
    return found;
  }

  function range(metric) {
    return once(`range ${metric}`, () => scores(metric).reduce(([low, high], value) => (
      [value < low ? value : low, value > high ? value : high]), [Infinity, -Infinity]));
  }

  return {row, kept, pair, tier, strongest, strongestRows, scores: scoresThrough, excesses, into, outOf, between, tally, range,
    metrics, src, dst, length, pairings: about.pairings, whole: about.whole, graphNull: about.graph_null};
})();

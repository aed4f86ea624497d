"use strict";
/* Pairs of heads: who writes to whom, with score and expected value, among those that the filters leave. */
headspan.pairs = (() => {
  const about = headspan.record.pairs;
  if (!about) return null;
  const {table, length} = {table: about.table, length: headspan.tables.table(about.table).length};
  const column = (name) => headspan.tables.column(table, name);
  const src = column("src"), dst = column("dst"), pairing = column("pairing");
  const srcLayer = column("src_layer"), dstLayer = column("dst_layer");
  const metrics = Object.keys(about.metrics);
  const score = Object.fromEntries(metrics.map((metric) => [metric, column(metric)]));
  let rows = null;

  /* Row of a pair; undefined where the page does not carry it. */
  function row(through, from, to) {
    if (rows === null) {
      rows = new Map();
      for (let i = 0; i < length; i++) rows.set(`${pairing.at(i)} ${src.at(i)} ${dst.at(i)}`, i);
    }
    return rows.get(`${through} ${from} ${to}`);
  }

  const within = (layer, [low, high]) => low <= layer && layer <= high;

  /* Whether the filters leave a row. */
  function kept(i, view) {
    return view.pairings.includes(pairing.at(i))
      && within(srcLayer.at(i), view.layers) && within(dstLayer.at(i), view.layers)
      && (view.min === null || score[view.metric].at(i) >= view.min);
  }

  function pair(i, metric) {
    const value = (suffix) => column(`${metric}_${suffix}`)?.at(i) ?? NaN;
    const nulls = about.nulls.map((name) => (
      {name, expected: value(`null_${name}`), p: value(`p_${name}`), q: value(`q_${name}`)})).filter((one) => !Number.isNaN(one.p));
    const {expected, q} = nulls[0] ?? {expected: NaN, q: NaN};
    return {
      row: i, src: src.at(i), dst: dst.at(i), pairing: pairing.at(i), score: score[metric].at(i),
      expected, q, nulls, tier: tier(value),
    };
  }

  /* Whether a pair is strong, stands out or is background, as lenses/affinity/wiring.py says; empty where no null tells. */
  const graphNull = ["two-way", "reverse"].find((name) => about.nulls.includes(name));
  function tier(value) {
    if (!graphNull) return "";
    if (value("mirror_fdr") <= 0.1) return "strong";
    return value(`q_${graphNull}`) < 0.05 ? "stands out" : "background";
  }

  /* Of the rows that `wanted` takes, the `count` strongest by the metric, strongest first. */
  function strongest(view, count, wanted = () => true) {
    const scores = score[view.metric];
    const found = [];
    for (let i = 0; i < length; i++)
      if (wanted(i) && kept(i, view) && !Number.isNaN(scores.at(i))) found.push(i);
    found.sort((a, b) => scores.at(b) - scores.at(a) || a - b);
    return found.slice(0, count).map((i) => pair(i, view.metric));
  }

  /* Scores through one pairing, and all pairs with what is above random subspaces, among those that the filters leave. */
  function* scores(name, metric, view) {
    for (let i = 0; i < length; i++)
      if (pairing.at(i) === name && kept(i, view) && !Number.isNaN(score[metric].at(i))) yield score[metric].at(i);
  }

  function* excesses(metric, view) {
    const expected = column(`${metric}_null_haar`);
    for (let i = 0; i < length; i++)
      if (kept(i, view) && !Number.isNaN(score[metric].at(i)))
        yield {src: src.at(i), dst: dst.at(i), pairing: pairing.at(i), excess: score[metric].at(i) - expected.at(i)};
  }

  const into = (labels) => (i) => labels.includes(dst.at(i));
  const outOf = (label) => (i) => src.at(i) === label;
  const between = (a, b) => (i) => (src.at(i) === a && dst.at(i) === b) || (src.at(i) === b && dst.at(i) === a);
  const through = (name) => (i) => pairing.at(i) === name;

  /* How many pairs the filters leave, and of how many. */
  function count(view) {
    let left = 0;
    for (let i = 0; i < length; i++) if (kept(i, view)) left++;
    return [left, length];
  }

  function range(metric) {
    let low = Infinity, high = -Infinity;
    for (let i = 0; i < length; i++) {
      const value = score[metric].at(i);
      if (value < low) low = value;
      if (value > high) high = value;
    }
    return [low, high];
  }

  return {row, kept, pair, strongest, scores, excesses, into, outOf, between, through, count, range, metrics,
    pairings: about.pairings, whole: about.whole};
})();

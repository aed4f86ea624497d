"use strict";
/* Figures that sum up pairs, counted again over the pairs that the filters leave: scores against the null, and hubs. Only
   where the page carries all pairs; a sample would give other numbers. */
headspan.recount = (() => {
  const possible = () => headspan.pairs?.whole;

  /* Density per bar; null where a bar is empty, which a logarithmic axis leaves out. */
  function density(trace, view) {
    const {pairing, counts: metric} = trace.meta;
    const first = trace.x[0] - trace.width / 2;
    const heights = new Array(trace.x.length).fill(0);
    let total = 0;
    for (const score of headspan.pairs.scores(pairing, metric, view)) {
      heights[Math.max(0, Math.min(heights.length - 1, Math.floor((score - first) / trace.width)))]++;
      total++;
    }
    return {...trace, y: heights.map((count) => (count ? count / total / trace.width : null))};
  }

  /* Mean score above the expected value of what reaches a head and of what it reaches, averaged over the pairings shown. */
  function hubs(metric, view) {
    const sums = new Map();
    const add = (label, side, pairing, excess) => {
      const key = `${label} ${side} ${pairing}`;
      const [sum, count] = sums.get(key) ?? [0, 0];
      sums.set(key, [sum + excess, count + 1]);
    };
    for (const {src, dst, pairing, excess} of headspan.pairs.excesses(metric, view)) {
      add(src, "out", pairing, excess);
      add(dst, "in", pairing, excess);
    }
    const mean = (label, side, pairing) => {
      const [sum, count] = sums.get(`${label} ${side} ${pairing}`) ?? [0, 0];
      return count ? Math.max(sum / count, 0) : null;
    };
    const average = (values) => {
      const known = values.filter((value) => value !== null);
      return known.length ? known.reduce((a, b) => a + b, 0) / view.pairings.length : NaN;
    };
    const reader = (label, pairing) => (headspan.labels.grouped && pairing !== "OQ" ? headspan.labels.keyOf(label) : label);
    return headspan.labels.all.map((label) => {
      const inlet = average(view.pairings.map((pairing) => mean(reader(label, pairing), "in", pairing)));
      const outlet = average(view.pairings.map((pairing) => mean(label, "out", pairing)));
      return {label, inlet, outlet, score: Math.sqrt(inlet * outlet)};
    }).filter((hub) => hub.score > 0).sort((a, b) => b.score - a.score);
  }

  /* The bars of the hub ranking. */
  function ranking(spec, view) {
    const {metric, names, count} = spec.layout.meta.hubs;
    const shown = hubs(metric, view).slice(0, count).reverse();
    return spec.data.map((trace) => ({...trace, y: shown.map((hub) => names[hub.label] ?? hub.label),
      x: shown.map((hub) => hub[trace.meta.side]), customdata: shown.map((hub) => hub.score)}));
  }

  return {
    trace: (trace) => Boolean(possible() && trace.meta?.counts),
    figure: (spec) => Boolean(possible() && spec.layout.meta?.hubs),
    density, ranking, hubs,
  };
})();

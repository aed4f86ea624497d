"use strict";
/* Numbers and pairs in words, the same everywhere on the page. */
headspan.words = (() => {
  const metricNames = headspan.record.pairs?.metrics ?? {};

  function number(value, digits = 3) {
    if (value === null || value === undefined || Number.isNaN(value)) return "–";
    if (value === 0) return "0";
    const size = Math.abs(value);
    return size >= 1e-3 && size < 1e5 ? String(Number(value.toPrecision(digits))) : value.toExponential(digits - 1);
  }

  /* Zero is what is left of a number too small for a float. */
  const p = (value, name = "p") => (Number.isNaN(value) || value === null ? "" : value === 0 ? `${name} < 1e-300`
    : `${name} = ${number(value, 2)}`);

  /* What the mouse is told about a pair; labels and numbers only, so there is nothing to escape. */
  function pair(edge) {
    const name = metricNames[headspan.state.get().metric];
    const lines = [`<b>${edge.src} → ${edge.dst}</b> (${edge.pairing})`,
      `${name} ${number(edge.score, 4)}, expected ${number(edge.expected, 4)}`,
      `random subspaces: ${p(edge.p)}, ${p(edge.q, "q")}`];
    if (!Number.isNaN(edge.pOrder)) lines.push(`reverse-order null: ${p(edge.pOrder)}, ${p(edge.qOrder, "q")}`);
    return lines.join("<br>");
  }

  return {number, p, pair, metricNames};
})();

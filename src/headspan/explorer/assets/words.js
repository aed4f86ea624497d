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

  const count = (value) => value.toLocaleString("en");
  const upper = (text) => text.charAt(0).toUpperCase() + text.slice(1);
  const nullNames = {"two-way": "two-way null", reverse: "reverse-order null", haar: "random subspaces"};
  const against = (null_) => null_.name === "expected" ? `Expected ${number(null_.expected)}, ${p(null_.p)}` : `${nullNames[null_.name] ?? null_.name}: expected ${number(null_.expected)}, ${p(null_.p)}`;

  /* What the pointer is told about a pair, line by line. */
  const pair = (edge, metric) => [`${edge.src} → ${edge.dst} (${edge.pairing}${edge.tier && `, ${edge.tier}`})`,
    `${upper(edge.words ?? metricNames[metric] ?? metric)} ${number(edge.score, 4)}`,
    ...edge.nulls.map((null_) => `${against(null_)}${null_.q === null_.q ? `, ${p(null_.q, "q")}` : ""}`)];

  return {number, p, count, upper, pair, against, nullNames, metricNames};
})();

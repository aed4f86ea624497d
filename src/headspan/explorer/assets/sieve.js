"use strict";
/* Filters, acting on any figure: points and cells whose heads lie outside the layers, or whose pair is not among those
   asked for, are left out. What names no head stays as it is. */
headspan.sieve = (() => {
  const inside = (label, [low, high]) => {
    const {layer} = headspan.labels.read(label);
    return low <= layer && layer <= high;
  };

  function keeps(trace, names, view) {
    if (!names.every((label) => inside(label, view.layers))) return false;
    if (view.min === null || names.length !== 2 || !trace.meta?.pairing || !headspan.pairs) return true;
    const row = headspan.pairs.row(trace.meta.pairing, names[0], names[1]);
    return row === undefined || headspan.pairs.kept(row, view);
  }

  function points(trace, view) {
    const across = trace.type === "bar" && trace.orientation === "h";
    const field = across ? "x" : "y";
    const kept = Array.from(trace[field], (value, i) => {
      const names = headspan.naming.named(trace, i);
      return names.length === 0 || keeps(trace, names, view) ? value : null;
    });
    return {...trace, [field]: kept};
  }

  function cells(trace, view) {
    const z = trace.z.map((line, i) => Array.from(line, (value, j) => {
      const names = headspan.naming.named(trace, [i, j]);
      return names.length === 0 || keeps(trace, names, view) ? value : null;
    }));
    return {...trace, z};
  }

  function sieved(trace, view) {
    const pairing = trace.meta?.pairing;
    if (pairing && !view.pairings.includes(pairing)) return {...trace, visible: false};
    if (headspan.recount.trace(trace)) return headspan.recount.density(trace, view);
    if (trace.meta?.src) return keeps(trace, [trace.meta.src, trace.meta.dst], view) ? trace : {...trace, visible: false};
    if (!headspan.naming.names(trace)) return trace;
    return trace.z ? cells(trace, view) : trace.x && trace.y ? points(trace, view) : trace;
  }

  return {sieved};
})();

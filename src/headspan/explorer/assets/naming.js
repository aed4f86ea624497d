"use strict";
/* Which heads a point of a figure names: those in its hover text. So a click chooses what the mouse is told, in every
   figure, and a new figure takes part without being registered anywhere. */
headspan.naming = (() => {
  const made = new WeakMap();

  const first = (template) => (Array.isArray(template) ? template[0] : template ?? "").split(/<br>|<extra>/)[0];

  /* The part of the hover text that names things, as literal texts and fields. */
  function pieces(trace) {
    if (!made.has(trace)) {
      const template = trace.meta?.names ?? first(trace.hovertemplate) ?? "";
      made.set(trace, template.split(/(%\{[^}]*\})/).map((part) => {
        const field = /^%\{([a-z]+)(?:\[(\d+)\])?[^}]*\}$/.exec(part);
        return field ? {field: field[1], place: field[2]} : {text: part.replace(/<\/?b>/g, "")};
      }));
    }
    return made.get(trace);
  }

  function value(trace, {field, place}, index) {
    const flat = Array.isArray(index);
    if (flat && (field === "x" || field === "y")) return trace[field]?.[index[field === "y" ? 0 : 1]];
    let found = trace[field];
    if (found === undefined || typeof found === "string") return found ?? "";
    for (const step of flat ? index : [index]) found = found?.[step];
    return place === undefined ? found : found?.[place];
  }

  /* Heads named by point `index` (a number, or row and column of a heat map). */
  function named(trace, index) {
    if (trace.meta?.src) return [trace.meta.src, trace.meta.dst];
    const parts = pieces(trace);
    if (parts.length === 1) return [];
    return headspan.labels.named(parts.map((part) => part.text ?? String(value(trace, part, index))).join(""));
  }

  /* Whether the points of a trace name heads at all: decided by the first few. */
  function names(trace) {
    if (trace.meta?.src) return true;
    const indices = trace.z ? [[0, 0], [0, 1], [1, 0]] : [0, 1, 2];
    return indices.some((index) => named(trace, index).length > 0);
  }

  return {named, names};
})();

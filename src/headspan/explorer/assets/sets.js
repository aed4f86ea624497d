"use strict";
/* Named sets of heads: published or detected classes, and those that the reader makes (a name and a list, or a CSV file with
   a head and a set on every line). Sets have colors and can be filtered by. */
headspan.sets = (() => {
  const COLORS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B8A800", "#7A6FBE"];
  const given = new Map();
  for (const [label, names] of Object.entries(headspan.record.classes))
    for (const name of names) given.set(name, [...(given.get(name) ?? []), label]);

  /* Every set by name, the reader's own first: what somebody defines, they want to see. */
  const all = (view = headspan.state.get()) => new Map([...Object.entries(view.sets), ...given]);

  const color = (name, view = headspan.state.get()) => {
    const place = [...given.keys()].indexOf(name);
    return COLORS[(place >= 0 ? place : given.size + Object.keys(view.sets).indexOf(name)) % COLORS.length];
  };

  /* Names of the sets that a head is in; the first gives its color. A set of most heads says least about one of them, so it
     comes last. */
  const members = new WeakMap();
  const common = (name, view) => !(name in view.sets) && given.get(name).length > headspan.labels.all.length / 2;
  function of(label, view = headspan.state.get()) {
    if (!members.has(view.sets)) {
      const found = new Map();
      for (const [name, heads] of [...all(view)].sort(([a], [b]) => common(a, view) - common(b, view)))
        for (const head of heads) found.set(head, [...(found.get(head) ?? []), name]);
      members.set(view.sets, found);
    }
    return members.get(view.sets).get(label) ?? [];
  }

  /* Whether a set colors nodes: one of most heads does where it is asked for. */
  const telling = (name, view) => !common(name, view) || view.classes.includes(name);
  const shade = (label, view) => {
    const name = of(label, view).find((each) => telling(each, view));
    return name === undefined ? null : color(name, view);
  };

  /* Heads named in a text, in whatever way they are separated. */
  const heads = (text) => [...new Set(text.split(/[\s,;]+/).map((each) => headspan.labels.read(each)?.label).filter(Boolean))];

  /* Sets out of a CSV text: a head and the name of its set on every line, in either order. */
  function fromCsv(text) {
    const found = {};
    for (const line of text.split(/\r?\n/)) {
      const cells = line.split(/[,;\t]/).map((cell) => cell.trim().replace(/^"|"$/g, ""));
      const label = cells.map((cell) => headspan.labels.read(cell)?.label).find(Boolean);
      const name = cells.find((cell) => cell && !headspan.labels.read(cell));
      if (label && name) (found[clean(name)] ??= []).push(label);
    }
    return found;
  }

  const clean = (name) => name.replace(/[|:]/g, " ").trim().slice(0, 60);
  const add = (sets) => headspan.state.set({sets: {...headspan.state.get().sets, ...sets}});
  const remove = (name) => {
    const {[name]: gone, ...rest} = headspan.state.get().sets;
    headspan.state.set({sets: rest, classes: headspan.state.get().classes.filter((each) => each !== name)});
  };

  return {all, color, shade, telling, of, heads, fromCsv, clean, add, remove};
})();

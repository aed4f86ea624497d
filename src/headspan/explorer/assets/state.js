"use strict";
/* What is looked at: the chosen head and pair, the filters, pinned heads, a path, sets of heads. It lives in the address
   after `#`, so that a view can be sent, and that back and forward go through the views. */
headspan.state = (() => {
  const {layers} = headspan.record.heads;
  const pairs = headspan.record.pairs;
  const pairings = pairs ? pairs.pairings : [];
  const metrics = pairs ? Object.keys(pairs.metrics) : [];
  const TIERS = {strong: "strong", out: "stands out", background: "background"};
  const listeners = [];

  const initial = () => ({
    head: null, with: null, pairings: [...pairings], layers: [layers[0], layers[layers.length - 1]],
    metric: metrics[0] ?? null, min: null, q: null, tiers: ["strong", "out"], way: "both", classes: [], kinds: [],
    pins: [], path: null, beside: false, sets: {}, at: null,
  });
  let current = initial();

  const label = (text) => headspan.labels.read(text ?? "")?.label ?? null;
  const listed = (text) => (text ?? "").split(",").filter(Boolean);
  const number = (text) => (Number.isFinite(Number.parseFloat(text)) ? Number.parseFloat(text) : null);

  /* How each part of the view is read from the address; what makes no sense leaves the view as it is. */
  const readers = {
    head: (text) => label(text), with: (text) => label(text), at: (text) => text,
    pairings: (text, plain) => orPlain(pairings.filter((name) => listed(text).includes(name)), plain),
    layers: (text, plain) => {
      const range = /^(\d+)-(\d+)$/.exec(text);
      const found = range && [Math.max(plain[0], +range[1]), Math.min(plain[1], +range[2])];
      return found && found[0] <= found[1] ? found : plain;
    },
    metric: (text, plain) => (metrics.includes(text) ? text : plain),
    min: number, q: number,
    tiers: (text) => Object.keys(TIERS).filter((name) => listed(text).includes(name)),
    way: (text, plain) => (["in", "out"].includes(text) ? text : plain),
    classes: (text) => text.split("|").filter(Boolean),
    kinds: (text) => listed(text),
    pins: (text) => listed(text).map(label).filter(Boolean),
    path: (text) => {
      const ends = text.split("-").map(label);
      return ends.length === 2 && ends.every(Boolean) ? ends : null;
    },
    beside: (text) => text === "1",
    sets: (text) => Object.fromEntries(text.split("|").map((each) => each.split(":")).filter((each) => each.length === 2)
      .map(([name, heads]) => [name, listed(heads).map(label).filter(Boolean)])),
  };
  const writers = {
    pairings: (value) => value.join(","), layers: (value) => value.join("-"), tiers: (value) => value.join(","),
    classes: (value) => value.join("|"), kinds: (value) => value.join(","), pins: (value) => value.join(","),
    path: (value) => value.join("-"), beside: () => "1",
    sets: (value) => Object.entries(value).map(([name, heads]) => `${name}:${heads.join(",")}`).join("|"),
  };
  const NAMES = {pairings: "pairing", tiers: "tier", classes: "class", kinds: "show", pins: "pin", sets: "set"};
  const ORDER = ["at", "head", "with", "pairings", "layers", "metric", "min", "q", "tiers", "way", "classes", "kinds", "pins",
    "path", "beside", "sets"];
  const orPlain = (found, plain) => (found.length ? found : plain);

  function parsed(fragment) {
    const found = initial();
    if (!fragment.includes("=")) return {...found, at: fragment || null};
    const given = new URLSearchParams(fragment);
    for (const part of ORDER) {
      const text = given.get(NAMES[part] ?? part);
      if (text !== null) found[part] = readers[part](text, found[part]);
    }
    if (!found.head) found.with = null;
    return found;
  }

  function written(view) {
    const plain = initial();
    const parts = ORDER.filter((part) => JSON.stringify(view[part]) !== JSON.stringify(plain[part]) && (part !== "with" || view.head));
    return parts.map((part) => [NAMES[part] ?? part, (writers[part] ?? String)(view[part])])
      .map(([name, value]) => `${name}=${encodeURIComponent(value).replaceAll("%2C", ",")}`).join("&");
  }

  function tell(before) {
    for (const listener of listeners) listener(current, before);
  }

  /* Change what is looked at. A change that is still going on (a slider) replaces the entry of the history. */
  function set(changes, {replace = false} = {}) {
    const before = current;
    current = {...current, ...changes};
    const fragment = written(current);
    if (fragment === written(before)) return;
    headspan.home.go(fragment, replace);
    tell(before);
  }

  function follow(fragment) {
    const before = current;
    current = parsed(fragment);
    tell(before);
  }

  const filtered = () => written({...current, head: null, with: null, at: null}) !== "";
  const clear = () => set({...initial(), head: current.head, with: current.with, at: current.at, sets: current.sets});
  return {get: () => current, set, follow, filtered, clear, TIERS, written: () => written(current),
    listen: (f) => listeners.push(f)};
})();

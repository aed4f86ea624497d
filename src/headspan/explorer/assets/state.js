"use strict";
/* What is looked at: the chosen head and pair, and the filters. It lives in the address after `#`, so that a view can be
   sent, and that back and forward go through the views. */
headspan.state = (() => {
  const {layers} = headspan.record.heads;
  const pairs = headspan.record.pairs;
  const pairings = pairs ? pairs.pairings : [];
  const metrics = pairs ? Object.keys(pairs.metrics) : [];
  const listeners = [];

  const initial = () => ({
    head: null, with: null, pairings: [...pairings], layers: [layers[0], layers[layers.length - 1]],
    metric: metrics[0] ?? null, min: null, at: null,
  });
  let current = initial();

  function parsed(fragment) {
    const found = initial();
    if (!fragment.includes("=")) return {...found, at: fragment || null};
    const given = new URLSearchParams(fragment);
    const head = (name) => headspan.labels.read(given.get(name) ?? "")?.label ?? null;
    found.head = head("head");
    found.with = found.head && head("with");
    const asked = (given.get("pairing") ?? "").split(",").filter((name) => pairings.includes(name));
    if (asked.length) found.pairings = pairings.filter((name) => asked.includes(name));
    const range = /^(\d+)-(\d+)$/.exec(given.get("layers") ?? "");
    if (range) found.layers = [Math.max(found.layers[0], +range[1]), Math.min(found.layers[1], +range[2])];
    if (found.layers[0] > found.layers[1]) found.layers = initial().layers;
    if (metrics.includes(given.get("metric"))) found.metric = given.get("metric");
    const min = Number.parseFloat(given.get("min"));
    if (Number.isFinite(min)) found.min = min;
    found.at = given.get("at");
    return found;
  }

  function written(view) {
    const plain = initial();
    const parts = [];
    if (view.at) parts.push(["at", view.at]);
    if (view.head) parts.push(["head", view.head]);
    if (view.head && view.with) parts.push(["with", view.with]);
    if (view.pairings.length < pairings.length) parts.push(["pairing", view.pairings.join(",")]);
    if (view.layers.join() !== plain.layers.join()) parts.push(["layers", view.layers.join("-")]);
    if (view.metric !== plain.metric) parts.push(["metric", view.metric]);
    if (view.min !== null) parts.push(["min", String(view.min)]);
    return parts.map(([name, value]) => `${name}=${encodeURIComponent(value).replaceAll("%2C", ",")}`).join("&");
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
    const address = `#${fragment || "top"}`;
    if (replace) history.replaceState(null, "", address);
    else history.pushState(null, "", address);
    tell(before);
  }

  function follow() {
    const before = current;
    current = parsed(location.hash.slice(1));
    tell(before);
  }

  function start() {
    window.addEventListener("popstate", follow);
    follow();
  }

  const filtered = () => written({...current, head: null, with: null, at: null}) !== "";
  const clear = () => set({...initial(), head: current.head, with: current.with, at: current.at});
  return {get: () => current, set, start, filtered, clear, written: () => written(current), listen: (f) => listeners.push(f)};
})();

"use strict";
/* The side panel: everything the page knows about one head, and the way to its partners. */
headspan.panel = (() => {
  const {make, headLink} = headspan.dom;
  const {number, p} = headspan.words;
  const record = headspan.record;
  const panel = document.getElementById("panel");
  const body = document.getElementById("panel-body");
  const SHOWN = 6;
  let rows = null;
  let returnTo = null;

  /* Row of a head in the table of heads. */
  function row(label) {
    if (rows === null) {
      const labels = headspan.tables.column("heads", "head");
      rows = new Map(Array.from({length: headspan.tables.table("heads").length}, (_, i) => [labels.at(i), i]));
    }
    return rows.get(label);
  }

  const fact = (label, name) => headspan.tables.column("heads", name)?.at(row(label)) ?? null;

  /* Where messages to a head arrive: at itself, and at the kv head whose keys and values it reads. */
  const ends = (label) => {
    const {kv} = headspan.labels.read(label);
    return kv || !headspan.labels.grouped ? [label] : [label, headspan.labels.keyOf(label)];
  };

  function part(title, ...children) {
    return make("section", {}, make("h3", {}, title), children);
  }

  function partners(title, edges, side, most) {
    if (edges.length === 0) return part(title, make("p", {class: "quiet"}, "None among the pairs shown."));
    const line = (edge) => make("tr", {},
      make("td", {}, headLink(edge[side])),
      make("td", {}, make("span", {class: `pairing ${edge.pairing}`}, edge.pairing)),
      make("td", {class: "score"}, make("i", {class: edge.pairing, style: `width: ${(100 * edge.score) / most}%`}),
        make("b", {style: `left: ${(100 * edge.expected) / most}%`, title: `expected ${number(edge.expected)}`})),
      make("td", {class: "value"}, number(edge.score)),
      make("td", {class: "p", title: edge.nulls.map(headspan.words.against).join("; ")}, p(edge.q, "q")));
    return part(title, make("table", {class: "partners"},
      make("thead", {class: "unseen"}, make("tr", {}, ["head", "through", "against the null", "score", "q-value"].map((name) => make("th", {}, name)))),
      make("tbody", {}, edges.map(line))));
  }

  function wiring(label, view) {
    if (!headspan.pairs) return [];
    const into = headspan.pairs.strongest(view, SHOWN, headspan.pairs.into(ends(label)));
    const outOf = headspan.pairs.strongest(view, SHOWN, headspan.pairs.outOf(label));
    const most = Math.max(...[...into, ...outOf].map((edge) => edge.score), 0) || 1;
    const name = headspan.words.metricNames[view.metric];
    const first = headspan.words.nullNames[headspan.record.pairs.nulls[0]];
    const note = `${name[0].toUpperCase()}${name.slice(1)}; the tick is the expected value, q its false-discovery rate (${first}).`;
    const {kv} = headspan.labels.read(label);
    return [partners("Strongest inlets", into, "src", most),
      kv ? null : partners("Strongest outlets", outOf, "dst", most),
      make("p", {class: "quiet"}, note, headspan.pairs.whole ? "" : " Among the strongest pairs only, which this page carries.")];
  }

  function pairPart(label, other, view) {
    if (!other || !headspan.pairs) return null;
    const found = headspan.pairs.strongest({...view, min: null, pairings: headspan.pairs.pairings, layers: [0, Infinity]},
      6, headspan.pairs.between(label, other));
    const line = (edge) => make("p", {}, make("span", {class: `pairing ${edge.pairing}`}, edge.pairing),
      ` ${edge.src} → ${edge.dst}: ${number(edge.score, 4)}${edge.tier && ` (${edge.tier})`}. `,
      make("span", {class: "quiet"}, edge.nulls.map(headspan.words.against).join("; ") + "."));
    return make("section", {class: "pair"}, make("h3", {}, "With ", headLink(other)),
      found.length ? found.map(line) : make("p", {class: "quiet"}, "This pair is not among those the page carries."));
  }

  function facts(label) {
    const lines = record.facts.flatMap(({title, column, expected, p: pColumn, of}) => {
      const value = fact(label, column);
      if (value === null || Number.isNaN(value)) return [];
      const text = typeof value === "number" ? number(value) : value;
      const beside = [of && fact(label, of) !== null && `of ${number(fact(label, of))}`,
        expected && `expected ${number(fact(label, expected))}`, pColumn && p(fact(label, pColumn))].filter(Boolean);
      return [make("div", {}, make("dt", {}, title),
        make("dd", {}, text, " ", make("span", {class: "quiet"}, beside.join(", "))))];
    });
    return lines.length ? [part("Numbers", make("dl", {}, lines))] : [];
  }

  function profile(label, about) {
    const {kv} = headspan.labels.read(label);
    const lines = about.lines.flatMap((line) => {
      const owner = line.kv ? (kv ? label : ends(label).at(-1)) : label;
      const place = (line.kv && headspan.labels.grouped ? headspan.labels.kvs : headspan.labels.all).indexOf(owner);
      return place < 0 ? [] : [{...line, values: headspan.store.resolved(line.values)[place]}];
    });
    if (!lines.some((line) => Array.from(line.values).some(Number.isFinite))) return null;
    return part(about.title, headspan.sparks.plot(`${about.title} of ${label}`, lines, about), headspan.sparks.key(lines));
  }

  function relatives(label) {
    if (!headspan.labels.grouped) return null;
    const {kv} = headspan.labels.read(label);
    return make("p", {class: "quiet"}, kv ? "Keys and values of " : "Reads keys and values of ",
      kv ? headspan.labels.readers(label).flatMap((each, i) => [i ? ", " : "", headLink(each)]) : headLink(ends(label)[1]), ".");
  }

  function show(view) {
    const label = view.head;
    panel.classList.toggle("open", Boolean(label));
    document.body.classList.toggle("with-panel", Boolean(label));
    if (!label) {
      body.replaceChildren(empty());
      return;
    }
    const classes = record.classes[label] ?? [];
    const step = (dx, dy, sign, words) => make("button", {type: "button", class: "step", "aria-label": words, title: words,
      onclick: () => headspan.state.set({head: headspan.labels.neighbor(label, dx, dy), with: null})}, sign);
    body.replaceChildren(
      make("header", {}, make("h2", {id: "panel-title", tabindex: "-1"}, label),
        make("div", {class: "steps"}, step(-1, 0, "←", "head before"), step(1, 0, "→", "next head"),
          step(0, -1, "↓", "layer below"), step(0, 1, "↑", "layer above")),
        make("button", {type: "button", class: "close", "aria-label": "Close", onclick: close}, "×")),
      make("p", {class: "classes"}, classes.map((name) => make("span", {class: "class"}, name))),
      relatives(label) ?? "", pairPart(label, view.with, view) ?? "",
      ...wiring(label, view).filter(Boolean), ...record.profiles.map((each) => profile(label, each)).filter(Boolean),
      ...facts(label));
    body.scrollTop = 0;
  }

  function empty() {
    const first = record.suggested.map((label) => make("li", {}, headLink(label)));
    return make("div", {class: "empty"}, make("h2", {id: "panel-title", tabindex: "-1"}, "One head at a time"),
      make("p", {}, "Click a head in any figure or sentence, or search for it, to see what it reads and writes."),
      first.length ? make("p", {class: "quiet"}, "The strongest hubs:") : null, make("ol", {class: "suggested"}, first));
  }

  /* Close, and go back to where the reader was. */
  function close() {
    headspan.state.set({head: null, with: null});
    if (returnTo?.isConnected) returnTo.focus();
    returnTo = null;
  }

  /* Choose a head; `focus` moves the keyboard into the panel. */
  function open(label, {other = null, focus = false} = {}) {
    if (!panel.contains(document.activeElement)) returnTo = document.activeElement;
    headspan.state.set({head: label, with: other});
    if (focus) document.getElementById("panel-title").focus({preventScroll: true});
  }

  return {show, open, close, ends, element: panel};
})();

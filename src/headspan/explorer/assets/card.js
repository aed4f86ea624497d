"use strict";
/* The card of one head: what it seems to be, what it attends to, what it reads and writes, who talks to it and to whom it
   talks, its numbers beside their nulls. What stands on it, the lenses' schemas say. */
headspan.card = (() => {
  const {make, headLink, button, place} = headspan.dom;
  const {number, p} = headspan.words;
  const record = headspan.record;
  const card = place("card", "aside");
  const SHOWN = 5, FACTS = 6;
  let rows = null, returnTo = null, current = null;

  /* Row of a head in the table of heads. */
  function row(label) {
    if (rows === null) {
      const labels = headspan.tables.column("heads", "head");
      rows = new Map(Array.from({length: headspan.tables.table("heads").length}, (_, i) => [labels.at(i), i]));
    }
    return rows.get(label);
  }
  const fact = (label, name) => (row(label) === undefined ? null : headspan.tables.column("heads", name)?.at(row(label)) ?? null);
  const part = (title, ...children) => make("section", {}, make("h3", {}, title), children);

  /* The end of the bars: no score and no expected value lies beyond it. */
  const scale = (edges) => Math.max(0, ...edges.flatMap((edge) => [edge.score, edge.expected]).filter(Number.isFinite)) || 1;

  function partners(title, edges, side, most) {
    if (edges.length === 0) return part(title, make("p", {class: "quiet"}, "None among the pairs shown."));
    const line = (edge) => make("tr", {class: edge.tier.replace(" ", "-"), "data-pair": `${edge.src}-${edge.dst}-${edge.pairing}`},
      make("td", {}, headLink(edge[side])),
      make("td", {}, make("span", {class: `pairing ${edge.pairing}`}, edge.pairing)),
      make("td", {class: "score"}, make("div", {class: "bars"}, make("i", {class: edge.pairing, style: {width: `${(100 * edge.score) / most}%`}}),
        make("b", {style: {left: `${(100 * edge.expected) / most}%`}, title: `expected ${number(edge.expected)}`}))),
      make("td", {class: "value"}, number(edge.score)),
      make("td", {class: "expected"}, number(edge.expected)),
      make("td", {class: "p", title: edge.nulls.map(headspan.words.against).join("; ")}, p(edge.q, "q")));
    return part(title, make("table", {class: "partners"},
      make("thead", {}, make("tr", {}, ["head", "", "", "score", "expected", ""].map((name) => make("th", {scope: "col"}, name)))),
      make("tbody", {}, edges.map(line))));
  }

  function wiring(label, view) {
    const {kv, kind} = headspan.labels.read(label);
    if (!headspan.pairs || (kind !== "head" && kind !== "kv")) return [];
    const into = headspan.pairs.strongest(view, SHOWN, headspan.pairs.into(headspan.labels.ends(label)));
    const outOf = kv ? [] : headspan.pairs.strongest(view, SHOWN, headspan.pairs.outOf(label));
    const most = scale([...into, ...outOf]);
    const first = headspan.words.nullNames[record.pairs.nulls[0]] ?? record.pairs.nulls[0] ?? "";
    const note = `${headspan.words.upper(headspan.words.metricNames[view.metric])}; the tick is the expected value, q the false-discovery rate (${first}).`;
    return [partners("Reads from", into, "src", most), kv ? null : partners("Writes to", outOf, "dst", most),
      make("p", {class: "quiet"}, note, headspan.pairs.whole ? "" : " Among the strongest pairs only, which this page carries.")];
  }

  /* Embeddings, MLPs and logits that a head reads from and writes to, and the partners of these nodes. */
  function more(label) {
    const into = headspan.graph.moreRows(SHOWN, (edge) => headspan.labels.ends(label).includes(edge.dst));
    const outOf = headspan.graph.moreRows(SHOWN, (edge) => edge.src === label);
    const isHead = headspan.labels.all.includes(label) || headspan.labels.kvs.includes(label);
    const most = scale([...into, ...outOf]);
    const also = isHead ? "Also r" : "R", alsoWrites = isHead ? "Also w" : "W";
    return [into.length ? partners(`${also}eads from`, into, "src", most) : null,
      outOf.length ? partners(`${alsoWrites}rites to`, outOf, "dst", most) : null,
      into.length + outOf.length ? make("p", {class: "quiet"}, `${headspan.words.upper(record.more.words)}; the tick is the expected value.`) : null];
  }

  function pairPart(label, other, view) {
    if (!other || !headspan.pairs) return null;
    const found = headspan.pairs.strongest({...view, min: null, q: null, pairings: headspan.pairs.pairings, layers: [-Infinity, Infinity]},
      6, headspan.pairs.between(label, other));
    const line = (edge) => make("p", {}, make("span", {class: `pairing ${edge.pairing}`}, edge.pairing),
      ` ${edge.src} → ${edge.dst}: ${number(edge.score, 4)}${edge.tier && ` (${edge.tier})`}. `,
      make("span", {class: "quiet"}, headspan.words.upper(edge.nulls.map(headspan.words.against).join("; ")) + "."));
    return make("section", {class: "pair", "data-pair-of": `${label}-${other}`}, make("h3", {}, "With ", headLink(other)),
      found.length ? found.map(line) : make("p", {class: "quiet"}, "This pair is not among those the page carries."),
      ...pairTexts(found),
      headspan.live?.pair(label, other) ?? "");
  }

  /* What lenses say of the chosen pair, such as the channels between two heads. */
  const pairTexts = (found) => (record.pair_texts ?? []).flatMap(({title, of, rest}) => {
    const lines = found.flatMap((edge) => (of[`${edge.src}-${edge.dst}-${edge.pairing}`] ?? []).map((line) => make("li", {},
      make("span", {class: `pairing ${edge.pairing}`}, edge.pairing), " ", unbroken(line))));
    if (!lines.length && !(rest && found.length)) return [];
    return [make("div", {class: "pair-text"}, make("h4", {}, title), lines.length ? make("ul", {}, lines) : make("p", {class: "quiet"}, rest))];
  });

  /* The number of a test stays on one line with its name. */
  const unbroken = (text) => text.split(/([pqz] [=<] \d[\d.]*(?:e-?\d+)?)/).map((part, i) => (i % 2 ? make("span", {class: "whole"}, part) : part));

  function factLine(label, {title, column, expected, p: pColumn, of}) {
    const value = fact(label, column);
    if (value === null || Number.isNaN(value)) return null;
    const text = typeof value === "number" ? number(value) : value;
    const beside = [of && fact(label, of) !== null && `of ${number(fact(label, of))}`,
      expected && `expected ${number(fact(label, expected))}`, pColumn && p(fact(label, pColumn))].filter(Boolean);
    return make("div", {}, make("dt", {}, title), make("dd", {}, text, " ", make("span", {class: "quiet"}, beside.join(", "))));
  }

  function facts(label) {
    // Numbers that have something to be held against come first.
    const ordered = [...record.facts].sort((a, b) => Boolean(b.expected) - Boolean(a.expected));
    const lines = ordered.map((each) => factLine(label, each)).filter(Boolean);
    const rest = lines.slice(FACTS);
    return lines.length ? [part("Numbers", make("dl", {}, lines.slice(0, FACTS)),
      rest.length ? make("details", {}, make("summary", {}, `${rest.length} more numbers`), make("dl", {}, rest)) : null)] : [];
  }

  function profile(label, about) {
    const lines = about.lines.flatMap((line) => {
      const owner = line.kv ? headspan.labels.ends(label).at(-1) : label;
      const place_ = (line.kv && headspan.labels.grouped ? headspan.labels.kvs : headspan.labels.all).indexOf(owner);
      return place_ < 0 ? [] : [{...line, values: headspan.store.resolved(line.values)[place_]}];
    });
    if (!lines.some((line) => Array.from(line.values).some(Number.isFinite))) return null;
    return part(about.title, headspan.sparks.plot(`${about.title} of ${label}`, lines, about), headspan.sparks.key(lines));
  }

  /* Spaces inside a token as marks, many of them as a count. */
  const visible = (token) => token.replace(/ +/g, ({length}) => (length > 3 ? `␣×${length}` : "␣".repeat(length)));

  function texts(label) {
    return (record.texts ?? []).map((about) => {
      const lines = about.of[label] ?? [];
      return lines.length ? part(about.title, lines.map((line) => make("p", {class: "token-line"},
        make("span", {class: "quiet"}, line.name ?? ""), make("span", {}, line.tokens.map((token) => make("code", {}, visible(token))))))) : null;
    });
  }

  function relatives(label) {
    const {kind} = headspan.labels.read(label);
    if (!headspan.labels.grouped || (kind !== "head" && kind !== "kv")) return null;
    return make("p", {class: "quiet"}, kind === "kv" ? "Keys and values of " : "Reads keys and values of ",
      kind === "kv" ? headspan.labels.readers(label).flatMap((each, i) => [i ? ", " : "", headLink(each)]) : headLink(headspan.labels.keyOf(label)), ".");
  }

  function header(label, view) {
    const step = (dx, dy, sign, words) => button(sign, () => headspan.state.set({head: headspan.labels.neighbor(label, dx, dy), with: null}),
      {class: "step", "aria-label": words, title: words});
    const isPinned = view.pins.includes(label);
    const pin = headspan.pairs ? button(isPinned ? "Unpin" : "Pin", () => headspan.state.set({
      pins: isPinned ? view.pins.filter((each) => each !== label) : [...view.pins, label]}), {class: "small", "aria-pressed": String(isPinned),
      title: "Pinned heads make a subgraph"}) : null;
    return make("header", {}, make("h2", {class: "card-title", tabindex: "-1"}, label),
      make("div", {class: "steps"}, step(-1, 0, "←", "head before"), step(1, 0, "→", "next head"), step(0, -1, "↓", "layer below"),
        step(0, 1, "↑", "layer above")), pin,
      view.head ? button("×", close, {class: "close", "aria-label": "Close"}) : null);
  }

  /* A sentence in which other heads are links, and a number stays with its percent sign. */
  const linked = (text, own) => text.replace(/(\d) %/g, "$1\u00a0%").split(/\b(L\d+[HK]\d+)\b/)
    .map((part) => (part !== own && headspan.labels.named(part)[0] === part ? headLink(part) : part));

  function sentence(label) {
    const names = headspan.sets.of(label);
    return make("div", {class: "sentence"},
      make("p", {class: "classes"}, names.map((name) => make("span", {class: "class", style: {"--set": headspan.sets.color(name)}}, name))),
      record.sentences[label] ? make("p", {}, linked(record.sentences[label], label)) : null);
  }

  function show(view) {
    const label = view.head ?? record.interesting;
    current = label;
    card.toggleAttribute("data-chosen", Boolean(view.head));
    if (!label) {
      card.removeAttribute("data-card");
      card.replaceChildren(make("p", {class: "quiet"}, "Click a head in any figure or sentence, or search for it."));
      return;
    }
    card.dataset.card = label;
    card.setAttribute("aria-label", `Head ${label}`);
    const maps = headspan.maps.all().map((map) => [map, headspan.maps.large(map, label)]).filter(([, found]) => found);
    const curves = record.profiles.map((each) => profile(label, each)).filter(Boolean);
    card.replaceChildren(header(label, view), sentence(label), relatives(label) ?? "",
      headspan.live?.head(label) ?? "", pairPart(label, view.with, view) ?? "",
      ...maps.map(([map, found]) => part(map.title, found)), ...texts(label).filter(Boolean),
      ...wiring(label, view).filter(Boolean), ...more(label).filter(Boolean), ...facts(label), ...curves);
    if (view.head !== previous && scrolled) card.scrollTop = 0;
    [previous, scrolled] = [view.head, scrolled && view.head === previous];
  }
  let previous = null, scrolled = false;
  card.addEventListener("scroll", () => { scrolled = true; }, {passive: true});

  /* Close, and go back to where the reader was. */
  function close() {
    headspan.state.set({head: null, with: null});
    if (returnTo?.isConnected) returnTo.focus({preventScroll: true});
    returnTo = null;
  }

  /* Choose a head; `focus` moves the keyboard to the card. */
  function open(label, {other = null, focus = false} = {}) {
    if (!card.contains(document.activeElement)) returnTo = document.activeElement;
    // Asked for before anything changes: afterwards the browser would have to lay the page out at once.
    const box = card.getBoundingClientRect();
    headspan.state.set({head: label, with: other});
    // On a narrow screen the card stands below the diagram.
    if (box.top > innerHeight - 80 || box.bottom < 80) card.scrollIntoView({block: "start"});
    if (focus) card.querySelector(".card-title")?.focus({preventScroll: true});
  }

  return {show, open, close, element: card, shown: () => current, refresh: () => show(headspan.state.get())};
})();

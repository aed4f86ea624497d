"use strict";
/* The wiring: which tiers are drawn, sliders over q and score, sets, a path, and one diagram, or two side by side. */
headspan.wiring = (() => {
  const {make, button, place} = headspan.dom;
  const {chip, slider, menu} = headspan.controls;
  const {number, count, upper} = headspan.words;
  const pairs = headspan.pairs, about = headspan.record.pairs, {TIERS} = headspan.state;
  const area = pairs ? place("diagram", "section") : null;
  if (!area) return {show: () => {}, redraw: () => {}, element: null, edges: () => [], view: () => null};

  const STEPS = 100, Q_STEPS = [1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 1e-3, 1e-4, 1e-6, 1e-9, 1e-12];
  const known = Object.entries(TIERS).filter(([key]) => key !== "strong" || about.graph_null === "two-way");
  const tiers = known.map(([key, name]) => chip("checkbox", "tier", upper(name), {mark: key,
    checked: (view) => view.tiers.includes(key),
    onchange: () => {
      const {tiers: before} = headspan.state.get();
      headspan.state.set({tiers: Object.keys(TIERS).filter((each) => (each === key ? !before.includes(each) : before.includes(each)))});
    }}));
  const qText = (step) => (step === 0 ? "any" : `≤ ${Q_STEPS[step]}`);
  const q = slider("q", {steps: Q_STEPS.length - 1, text: qText, oninput: (step) => headspan.state.set({q: step === 0 ? null : Q_STEPS[step]})});
  const least = (step) => {
    const [low, high] = pairs.range(headspan.state.get().metric);
    return step === 0 ? null : Number((low + (step / STEPS) * (high - low)).toPrecision(4));
  };
  const score = slider("Score", {steps: STEPS, text: (step) => (step === 0 ? "any" : `≥ ${number(least(step))}`),
    oninput: (step) => headspan.state.set({min: least(step)})});
  const ways = {both: "In and out", in: "Into it", out: "Out of it"};
  const way = Object.entries(ways).map(([key, words]) => chip("radio", "way", words, {checked: (view) => view.way === key,
    onchange: () => headspan.state.set({way: key})}));
  const wayGroup = make("span", {class: "group ways", role: "group", "aria-label": "Pairs of the chosen head"}, way.map((each) => each.element));
  const kinds = [...new Set(headspan.labels.others.map((node) => node.kind))].map((kind) => chip("checkbox", "kind",
    kind === "mlp" ? "MLP" : upper(kind), {mark: kind, checked: (view) => view.kinds.includes(kind), onchange: () => {
      const {kinds: before} = headspan.state.get();
      headspan.state.set({kinds: before.includes(kind) ? before.filter((each) => each !== kind) : [...before, kind]});
    }}));

  const setsMenu = menu("Sets");
  const pathMenu = menu("Path");
  const saveMenu = menu("Save");
  const ends = ["From", "To"].map((name) => make("input", {type: "text", size: 7, "aria-label": `${name} head`, placeholder: name}));
  const pathNote = make("p", {class: "quiet", role: "status"});
  pathMenu.body.append(make("form", {class: "row", onsubmit: (event) => {
    event.preventDefault();
    const labels = ends.map((each) => headspan.labels.read(each.value)?.label);
    if (labels.every(Boolean)) headspan.state.set({path: labels});
    else pathNote.textContent = "Write two heads, such as L4H7 and L5H1.";
  }}, ends, make("button", {type: "submit"}, "Show"), button("No path", () => headspan.state.set({path: null}))), pathNote,
  make("p", {class: "quiet"}, "The path through the pairs shown whose weakest pair is strongest against its expected value."));
  for (const kind of ["SVG", "PNG", "GraphML", "CSV"])
    saveMenu.body.append(button(`${kind}: what is drawn`, () => headspan.exports.save(kind), {"data-save": kind.toLowerCase()}));
  saveMenu.body.append(button("CSV: all pairs", () => {}, {"data-csv": about.table}), button("CSV: all heads", () => {}, {"data-csv": "heads"}));

  const note = make("p", {class: "count", role: "status"});
  const nullNote = make("p", {class: "quiet null-note"}, about.null_note ?? "");
  const boxes = [make("div", {class: "canvas"}), make("div", {class: "canvas", hidden: true})];
  const captions = boxes.map(() => make("p", {class: "canvas-title", hidden: true}));
  const canvases = make("div", {class: "canvases"}, boxes.map((box, i) => make("div", {}, captions[i], box)));
  const legend = make("p", {class: "wires-legend"});
  area.append(make("div", {class: "controls"}, about.graph_null ? tiers.map((each) => each.element) : [],
    about.graph_null ? q.element : null, score.element, wayGroup,
    kinds.map((each) => each.element)),
  make("div", {class: "counts"}, note, nullNote), canvases, legend);
  headspan.controls.tools.append(setsMenu.element, pathMenu.element, saveMenu.element);
  const diagrams = boxes.map((box, i) => headspan.diagram.build(box, i ? "Wiring diagram by the other score" : "Wiring diagram"));
  let shown = {edges: [], left: 0}, listed = null;

  function showSets(view) {
    const names = [...headspan.sets.all(view)];
    const name = make("input", {type: "text", placeholder: "name", "aria-label": "Name of the set", size: 10});
    const heads = make("input", {type: "text", placeholder: "L4H7, L5H1", "aria-label": "Heads of the set", size: 18});
    const file = make("input", {type: "file", accept: ".csv,text/csv", "aria-label": "CSV file of sets", onchange: async () => {
      headspan.sets.add(headspan.sets.fromCsv(await file.files[0].text()));
    }});
    setsMenu.body.replaceChildren(
      ...names.map(([each, members]) => make("label", {class: "set"}, make("input", {type: "checkbox", checked: view.classes.includes(each),
        onchange: () => headspan.state.set({classes: view.classes.includes(each) ? view.classes.filter((other) => other !== each) : [...view.classes, each]})}),
      make("i", {style: {background: headspan.sets.color(each, view)}}), make("span", {}, each), make("span", {class: "quiet"}, count(members.length)),
      each in view.sets ? button("×", () => headspan.sets.remove(each), {"aria-label": `Remove ${each}`}) : null)),
      make("form", {class: "row", onsubmit: (event) => {
        event.preventDefault();
        const [label, members] = [headspan.sets.clean(name.value), headspan.sets.heads(heads.value)];
        if (label && members.length) headspan.sets.add({[label]: members});
      }}, name, heads, make("button", {type: "submit"}, "Add")),
      make("label", {class: "row"}, make("span", {class: "quiet"}, "or a CSV file (head, set)"), file));
  }

  /* "41 strong, 430 more stand out, 9,033 do not", and what of it is drawn. */
  function sentence(view, left, list) {
    const tally = pairs.tally(view);
    const all = tally.strong + tally["stands out"] + tally.background + tally[""];
    const told = !about.graph_null ? `${count(all)} pairs. No null tells edges from background here; the strongest are drawn.`
      : tally.strong + tally["stands out"] === 0 ? `None of ${count(all)} pairs stands out${view.tiers.includes("background") ? "" : "; Background draws them"}.`
        : `${about.graph_null === "two-way" ? `${count(tally.strong)} strong, ${count(tally["stands out"])} more stand out` : `${count(tally["stands out"])} pairs stand out`}, ${count(tally.background)} do not.`;
    const drawn = left ? ` ${count(list.length)} of ${count(list.length + left)} drawn, strongest first.` : "";
    const pins = view.pins.length ? ` Pinned: ${view.pins.join(", ")}.` : "";
    return `${told}${drawn}${pins}`;
  }

  function showPath(view, path) {
    if (!view.path) pathNote.textContent = "";
    else if (!path.length) pathNote.textContent = `No path from ${view.path[0]} to ${view.path[1]} through the pairs shown.`;
    else {
      const weakest = path.reduce((a, b) => (a.score / a.expected < b.score / b.expected ? a : b));
      pathNote.textContent = `${[path[0].src, ...path.map((edge) => edge.dst)].join(" → ")}. Weakest: ${weakest.src} → ${weakest.dst}, `
        + `${number(weakest.score)} where ${number(weakest.expected)} is expected.`;
    }
    view.path?.forEach((label, i) => { ends[i].value = label; });
  }

  /* Width of a diagram, and room below the controls down to the end of the first screen. Asking for either makes the
     browser lay the page out at once, so they are asked for again only where they may have changed. */
  const GAP = 16, CAPTION = 22, stacked = matchMedia("(max-width: 54rem)");
  let measured = {key: null};
  function room(count) {
    const key = [innerWidth, innerHeight].join();
    if (key !== measured.key || !measured.width) {
      const top = boxes[0].getBoundingClientRect().top + (headspan.home.scrolled?.() ?? 0);
      const height = headspan.home.room ?? Math.max(260, Math.min(820, innerHeight - Math.min(top, innerHeight * 0.55) - 44));
      measured = {key, height, width: canvases.clientWidth};
    }
    if (count < 2) return measured;
    return {height: measured.height - CAPTION, width: stacked.matches ? measured.width : Math.floor((measured.width - GAP) / 2)};
  }

  function draw(view) {
    const other = pairs.metrics.find((name) => name !== view.metric), beside = Boolean(view.beside && other);
    const size = room(beside ? 2 : 1);
    shown = headspan.graph.edges(view, view.metric);
    const path = view.path ? headspan.graph.path(shown.edges, view.path) : [];
    boxes[1].hidden = !beside;
    captions.forEach((each, i) => {
      each.hidden = !beside;
      each.textContent = upper(headspan.words.metricNames[i ? other : view.metric] ?? "");
    });
    area.classList.toggle("beside", beside);
    diagrams[0].show(view, view.metric, shown.edges, path, size);
    if (beside) headspan.frames.begin(boxes[1], second(view, other, size));
    else diagrams[1].clear();
    note.textContent = sentence(view, shown.left, shown.edges);
    showPath(view, path);
  }

  /* The diagram by the other score. To search all pairs takes as long as to draw a few hundred. */
  function* second(view, other, size) {
    const list = headspan.graph.edges(view, other).edges;
    yield headspan.frames.MOST / 2;
    diagrams[1].show(view, other, list, [], size);
  }

  function showLegend(view) {
    const roles = {Q: "queries", K: "keys", V: "values"};
    const used = [...headspan.sets.all(view)].filter(([name]) => headspan.sets.telling(name, view));
    legend.replaceChildren(
      ...view.pairings.map((name) => make("span", {}, make("i", {class: `line ${name}`}), `${name}: output to ${roles[name[1]] ?? name}`)),
      ...used.slice(0, 10).map(([name]) => make("span", {class: "set-name"}, make("i", {style: {background: headspan.sets.color(name, view)}}), name)));
  }

  function show(view) {
    for (const each of [...tiers, ...way, ...kinds]) each.show(view);
    const step = view.q === null ? 0 : Math.max(0, Q_STEPS.findIndex((value) => value <= view.q));
    q.show(step, view.q === null ? "any" : `≤ ${view.q}`);
    const [low, high] = pairs.range(view.metric);
    score.show(view.min === null ? 0 : Math.round((STEPS * (view.min - low)) / (high - low || 1)), view.min === null ? "any" : `≥ ${number(view.min)}`);
    wayGroup.hidden = !view.head;
    const sets = JSON.stringify([view.sets, view.classes, view.pairings]);
    if (sets !== listed) {
      showSets(view);
      showLegend(view);
      listed = sets;
    }
    draw(view);
  }

  function redraw() {
    measured = {key: null};
    draw(headspan.state.get());
  }

  return {show, redraw, element: area, edges: () => shown.edges, diagram: diagrams[0]};
})();

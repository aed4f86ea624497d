"use strict";
/* The wiring diagram, drawn from the table of pairs: the strongest pairs that the filters leave, and those of the chosen
   head in front of them. Layout follows figures/wiring_diagram.py, with the pixels that the page really has. */
headspan.wiring = (() => {
  const TOP = 20, OWN = 8, POINTS = 17, DROP = 0.42;
  const BOWS = [-0.09, 0.05, 0.13];
  /* Width and opacity by tier, weakest and strongest; the score decides within. */
  const LINES = {"": [[1.2, 4.5], [0.55, 0.95]], strong: [[2.8, 4.5], [0.9, 0.95]], "stands out": [[1.2, 2.2], [0.6, 0.75]],
    background: [[1, 1.2], [0.3, 0.35]]};
  const {layers, heads, kv_heads: kvHeads} = headspan.record.heads;

  function places() {
    const found = new Map();
    const group = heads / kvHeads;
    layers.forEach((layer, y) => {
      for (let head = 0; head < heads; head++) found.set(`L${layer}H${head}`, [head, y]);
      if (kvHeads < heads)
        for (let head = 0; head < kvHeads; head++)
          found.set(`L${layer}K${head}`, [head * group + (group - 1) / 2, y - DROP]);
    });
    return found;
  }

  const where = places();

  /* A curve between two heads that ends at the edge of the dot, its last piece as long as the arrow's tip. */
  function curve(from, to, bow, pixels, radius, tip) {
    const [dx, dy] = [0, 1].map((k) => (to[k] - from[k]) * pixels[k]);
    const middle = [(from[0] + to[0]) / 2 + (bow * dy) / pixels[0], (from[1] + to[1]) / 2 - (bow * dx) / pixels[1]];
    const at = (t) => [0, 1].map((k) => (1 - t) ** 2 * from[k] + 2 * t * (1 - t) * middle[k] + t ** 2 * to[k]);
    const left = (t) => Math.hypot((at(t)[0] - to[0]) * pixels[0], (at(t)[1] - to[1]) * pixels[1]);
    let base = 1, edge = 1;
    while (edge > 0.02 && left(edge) < radius) edge -= 0.005;
    base = edge;
    while (base > 0.01 && left(base) < radius + tip) base -= 0.005;
    const stops = Array.from({length: POINTS}, (_, i) => (base * i) / (POINTS - 1));
    return [...stops, edge].map(at);
  }

  function arrow(edge, place, strength, {faint, off}, about) {
    const tip = 8 + 5 * strength;
    const [width, opacity] = LINES[edge.tier].map(([low, high]) => low + strength * (high - low));
    const line = curve(where.get(edge.src), where.get(edge.dst), BOWS[place % 3], about.pixels,
      about.busy.has(edge.dst) ? about.dot / 2 : about.dot / 8 + 2, tip);
    const color = about.colors[edge.pairing];
    return {
      type: "scatter", mode: "lines+markers", x: line.map((p) => p[0]), y: line.map((p) => p[1]),
      line: {color: color, width, simplify: false,
        backoff: [...Array(line.length - 1).fill(0), tip / 2]},
      marker: {symbol: "arrow", size: [...Array(line.length - 1).fill(0), tip], angleref: "previous", color: color,
        line: {width: 0}},
      opacity: faint ? 0.13 : opacity, visible: off ? "legendonly" : true,
      meta: {pairing: edge.pairing, src: edge.src, dst: edge.dst}, showlegend: false,
      legendgroup: off ? "background" : edge.pairing,
      hovertemplate: about.words(edge) + "<extra></extra>",
    };
  }

  function edges(view) {
    const general = headspan.pairs.pairings.filter((name) => view.pairings.includes(name))
      .flatMap((name) => headspan.pairs.strongest(view, TOP, headspan.pairs.through(name)));
    if (!view.head) return {general, own: []};
    const ends = headspan.panel.ends(view.head);
    const own = [...headspan.pairs.strongest(view, OWN, headspan.pairs.into(ends)),
      ...headspan.pairs.strongest(view, OWN, headspan.pairs.outOf(view.head))];
    const rows = new Set(own.map((edge) => edge.row));
    return {general: general.filter((edge) => !rows.has(edge.row)), own};
  }

  function arrows(view, about) {
    const {general, own} = edges(view);
    const scores = [...general, ...own].map((edge) => edge.score);
    const low = Math.min(...scores), high = Math.max(...scores);
    const shown = own.length ? own : general.filter((edge) => !isBackground(edge));
    about.busy = new Set((shown.length ? shown : general).flatMap((edge) => [edge.src, edge.dst]));
    const drawn = (edge, how) => arrow(edge, headspan.pairs.pairings.indexOf(edge.pairing),
      high > low ? (edge.score - low) / (high - low) : 1, how, about);
    const weakestFirst = (list) => [...list].sort((a, b) => a.score - b.score);
    about.background = general.some(isBackground);
    return [...weakestFirst(general).map((edge) => drawn(edge, {faint: Boolean(view.head), off: isBackground(edge)})),
      ...weakestFirst(own).map((edge) => drawn(edge, {}))];
  }

  /* Pairs that share no more than expected are off until their legend entry is clicked. */
  const isBackground = (edge) => edge.tier === "background";

  function legend(view, about) {
    const entry = (name, group, line, visible = true) => (
      {type: "scatter", mode: "lines", x: [null], y: [null], name, legendgroup: group, line, visible});
    return [...headspan.pairs.pairings.filter((name) => view.pairings.includes(name))
      .map((name) => entry(about.names[name], name, {color: about.colors[name], width: 3})),
    ...(about.background ? [entry("background pairs", "background", {color: "#8A929A", width: 1.2}, "legendonly")] : [])];
  }

  const square = (label) => label.includes("K");

  function dots(labels, about, style) {
    return {type: "scatter", x: labels.map((label) => where.get(label)[0]), y: labels.map((label) => where.get(label)[1]),
      text: labels, mode: style.text ? "markers+text" : "markers", textfont: {size: 10, color: "#1B1F24"},
      marker: {size: style.size, color: style.color, opacity: style.opacity ?? 1, line: style.line,
        symbol: labels.map((label) => (square(label) ? "square" : style.symbol ?? "circle"))},
      name: style.name, legend: "legend2", showlegend: Boolean(style.legend && labels.length),
      hovertemplate: `<b>%{text}</b><extra>${style.name ?? ""}</extra>`};
  }

  const inside = (label, view) => {
    const {layer} = headspan.labels.read(label);
    return view.layers[0] <= layer && layer <= view.layers[1];
  };

  function ties(view) {
    const x = [], y = [];
    if (kvHeads < heads)
      for (const label of headspan.labels.all.filter((each) => inside(each, view))) {
        const [a, b] = [where.get(label), where.get(headspan.labels.keyOf(label))];
        x.push(a[0], b[0], null);
        y.push(a[1], b[1], null);
      }
    return {type: "scatter", mode: "lines", x, y, hoverinfo: "skip", showlegend: false,
      line: {color: "rgba(128, 138, 148, 0.28)", width: 1}};
  }

  function headTraces(view, about) {
    const shown = [...where.keys()].filter((label) => inside(label, view));
    const big = shown.filter((label) => about.busy.has(label) || label === view.head);
    const line = {width: 1, color: "#8A929A"}, text = about.dot >= 26, size = about.dot;
    const classes = Object.entries(about.classes);
    const members = (name) => big.filter((label) => about.classOf[label] === name);
    return [
      dots(shown.filter((label) => !big.includes(label)), about, {size: about.dot / 4, color: "#8A929A", opacity: 0.35}),
      ...classes.map(([name, [color, symbol]]) => dots(members(name), about,
        {size, color, symbol, line, text, name, legend: true})),
      dots(big.filter((label) => !(about.classOf[label] in about.classes)), about,
        {size, color: "#DDDDDD", line, text, name: classes.length ? "no class" : undefined, legend: classes.length > 0}),
      ...(view.head && where.has(view.head) ? [selected(view.head, about)] : []),
    ];
  }

  function selected(head, about) {
    const color = getComputedStyle(document.documentElement).getPropertyValue("--mark").trim();
    const [x, y] = where.get(head);
    return {type: "scatter", mode: "markers", x: [x], y: [y], hoverinfo: "skip", showlegend: false, cliponaxis: false,
      marker: {symbol: square(head) ? "square-open" : "circle-open", size: about.dot + 6, color: color,
        line: {width: 3, color: color}}};
  }

  /* The figure as stored, with arrows and heads for this view. */
  function drawn(spec, view, width) {
    const whole = spec.layout.yaxis.range;
    const [first, last] = view.layers.map((layer) => layers.indexOf(layer));
    const range = [whole[0] + first, whole[1] - (layers.length - 1 - last)];
    const pixels = [Math.max(200, width - 90) / heads, Math.max(160, spec.layout.height - 150) / (range[1] - range[0])];
    const about = {...spec.layout.meta, pixels, dot: Math.min(34, 0.9 * Math.min(...pixels)), words: headspan.words.pair};
    const traces = arrows(view, about);
    const below = {...spec.layout.legend2, y: -62 / Math.max(160, spec.layout.height - 150)};
    return {data: [ties(view), ...legend(view, about), ...traces, ...headTraces(view, about)],
      layout: {...spec.layout, legend2: below, yaxis: {...spec.layout.yaxis, range}}};
  }

  return {drawn};
})();

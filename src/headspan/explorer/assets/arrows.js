"use strict";
/* The arrows of one diagram. Those of what is chosen stand in a layer of their own, in front; the others stay as they are and
   turn pale as a whole. A pair keeps its element, and only what differs is written. Opacity is that of the stroke: that of an
   element would make each arrow a layer of its own when the page is painted. */
headspan.arrows = (() => {
  const {svg, change} = headspan.dom;
  const FAINT = 0.16, SPARE = 6000, REMOVAL = 0.25;
  /* Width and opacity by tier, weakest and strongest; the score decides within. */
  const WITHOUT_STRONG = [[0.7, 3.6], [0.28, 0.95]];
  const LINES = {"": [[1.2, 3.5], [0.5, 0.9]], strong: [[2.4, 4.2], [0.85, 0.95]], "stands out": [[1, 1.7], [0.45, 0.65]],
    background: [[0.8, 1], [0.2, 0.28]]};

  function distance([x, y], points) {
    let least = Infinity;
    for (let i = 1; i < points.length; i++) {
      const [[ax, ay], [bx, by]] = [points[i - 1], points[i]];
      const [dx, dy] = [bx - ax, by - ay], along = dx * dx + dy * dy || 1;
      const t = Math.max(0, Math.min(1, ((x - ax) * dx + (y - ay) * dy) / along));
      least = Math.min(least, Math.hypot(x - ax - t * dx, y - ay - t * dy));
    }
    return least;
  }

  function build() {
    const back = svg("g", {class: "edges"}), front = svg("g", {class: "edges own"}), elements = new Map();
    let list = null, key = "", shown = [], own = [], focused = false, scale = {};

    /* Many lines are drawn thinner and paler, so that the strong ones can be followed; those of the chosen head in full. */
    function line(edge, isOwn) {
      const {low, high, crowd, strong} = scale;
      const strength = edge.words ? 0.5 : high > low ? (edge.score - low) / (high - low) : 1;
      // Where only a rotation is known as null, an edge is drawn lightly: anisotropy alone exceeds that.
      const lines = edge.tier === "stands out" && !strong && !edge.words ? WITHOUT_STRONG : LINES[edge.words && !edge.tier ? "background" : edge.tier];
      const [width, opacity] = lines.map(([least, most]) => least + strength * (most - least));
      if (isOwn) return {width, opacity: Math.min(1, opacity + 0.2)};
      return {width: width * (0.5 + crowd / 2), opacity: opacity * (edge.tier === "strong" ? 0.7 + 0.3 * crowd : crowd)};
    }

    function drawn(edge, isOwn, {nodes}) {
      const {width, opacity} = line(edge, isOwn), place = Math.max(0, headspan.pairs.pairings.indexOf(edge.pairing));
      const arrow = headspan.layout.arrow(nodes.get(edge.src), nodes.get(edge.dst), place, width);
      return {points: arrow.points, attributes: {d: arrow.d, "stroke-width": width.toFixed(2), "stroke-opacity": opacity.toFixed(2)}};
    }

    function elementOf(edge) {
      const id = `${edge.src}-${edge.dst}-${edge.pairing}`;
      if (!elements.has(id)) elements.set(id, svg("path", {class: `edge ${edge.words ? "more" : edge.pairing}`, "data-edge": id}));
      const found = elements.get(id);
      change(found, {"data-tier": edge.tier});
      return found;
    }

    /* What is there to draw; strong ones come last, which is in front. */
    function take(edges, places) {
      const known = edges.filter((edge) => places.nodes.has(edge.src) && places.nodes.has(edge.dst));
      const scores = known.filter((edge) => !edge.words).map((edge) => edge.score);
      scale = {low: Math.min(...scores), high: Math.max(...scores), strong: known.some((edge) => edge.tier === "strong"), crowd: Math.min(1, Math.max(0.35, (150 / Math.max(1, edges.length)) ** 0.5))};
      shown = [...known.filter((edge) => edge.tier !== "strong"), ...known.filter((edge) => edge.tier === "strong")]
        .map((edge) => ({edge, places, plain: null, own: false}));
      [list, key] = [edges, places.key];
      if (elements.size > SPARE) for (const [id, element] of elements) if (!element.isConnected) elements.delete(id);
    }
    const plain = (each) => (each.plain ??= drawn(each.edge, false, each.places));

    /* Which edges there are and which of them are the chosen head's, or on the path; `lay` writes them. */
    function show(edges, places, view, path) {
      if (edges !== list || places.key !== key) take(edges, places);
      const ends = view.head ? headspan.labels.ends(view.head) : [], onPath = new Set(path.map((edge) => edge.row));
      focused = Boolean(view.head) || onPath.size > 0;
      for (const each of shown)
        each.own = focused && (onPath.size ? onPath.has(each.edge.row) : each.edge.src === view.head || ends.includes(each.edge.dst));
      own = shown.filter((each) => each.own);
    }

    /* What is chosen first, then the others from the front to the back: the strongest are there first. */
    function* lay() {
      change(back, {opacity: focused ? FAINT : 1});
      for (const {edge, places} of own) {
        const element = elementOf(edge);
        change(element, drawn(edge, true, places).attributes);
        front.append(element);
        yield;
      }
      const wanted = new Set(shown.map(({edge}) => elementOf(edge)));
      for (const element of [...back.children, ...front.children])
        if (!wanted.has(element)) {
          element.remove();
          yield REMOVAL;
        }
      let at = back.lastChild;
      for (const each of shown.toReversed()) {
        if (each.own) continue;
        const element = elementOf(each.edge);
        let wrote = change(element, plain(each).attributes);
        if (element === at) at = at.previousSibling;
        else {
          back.insertBefore(element, at ? at.nextSibling : back.firstChild);
          wrote = true;
        }
        if (wrote) yield;
      }
    }

    /* The nearest edge within a few pixels; of a chosen head only its own. */
    function hit(point, most) {
      let best = null, least = most;
      for (const each of focused ? own : shown) {
        const away = distance(point, plain(each).points());
        if (away < least) [best, least] = [each, away];
      }
      return best && {edge: best.edge, element: elementOf(best.edge)};
    }

    function clear() {
      for (const layer of [back, front]) layer.replaceChildren();
      [list, shown, own] = [null, [], []];
    }

    /* How many of the edges shown in full begin or end at each node. */
    function tally() {
      const found = new Map();
      for (const {edge} of focused ? own : shown)
        for (const id of [edge.src, edge.dst]) found.set(id, (found.get(id) ?? 0) + 1);
      return found;
    }

    return {layers: [back, front], show, lay, hit, tally, clear, all: () => shown.map(({edge}) => edge)};
  }

  return {build};
})();

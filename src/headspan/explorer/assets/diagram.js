"use strict";
/* One wiring diagram as SVG: edges below, nodes above. What the pointer means is found by geometry: a node where it is in a
   node's box, else the nearest edge within a few pixels. */
headspan.diagram = (() => {
  const {make, svg} = headspan.dom;
  const NEAR = 6, FAINT = 0.16;
  /* Width and opacity by tier, weakest and strongest; the score decides within. */
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

  /* Only what differs is written: a thousand attributes that stay cost more than the few that change. */
  const written = new WeakMap();
  function change(element, attributes) {
    const before = written.get(element) ?? {};
    for (const name in attributes) if (before[name] !== attributes[name]) element.setAttribute(name, attributes[name]);
    written.set(element, attributes);
  }

  function build(box, title) {
    const edgeLayer = svg("g", {class: "edges"}), ownLayer = svg("g", {class: "edges own"}), nodeLayer = svg("g", {class: "nodes"});
    const axis = svg("g", {class: "axis"});
    const ties = svg("path", {class: "ties"});
    const picture = svg("svg", {class: "wires", role: "group", "aria-label": title, tabindex: "0",
      "aria-description": "Arrow keys go from head to head, Enter goes to the card"}, axis, ties, edgeLayer, ownLayer, nodeLayer);
    const tip = make("div", {class: "tip", role: "status", hidden: true});
    box.replaceChildren(picture, tip);
    const curves = new WeakMap(), paths = new WeakMap(), shapes = new Map();
    let listed = null, laid = "";
    let drawn = {nodes: new Map(), edges: [], key: ""}, metric = null, hovered = null;

    /* Many lines are drawn thinner and paler, so that the strong ones can be followed; those of the chosen head in full. */
    function lineOf(edge, low, high, own, crowd) {
      const strength = edge.words ? 0.5 : high > low ? (edge.score - low) / (high - low) : 1;
      // Where only a rotation is known as null, an edge is drawn lightly: anisotropy alone exceeds that.
      const [width, opacity] = LINES[edge.words && !edge.tier ? "background" : edge.tier].map(([least, most]) => least + strength * (most - least));
      if (own) return {width, opacity: Math.min(1, opacity + 0.2)};
      return {width: width * (0.5 + crowd / 2), opacity: opacity * (edge.tier === "strong" ? 0.7 + 0.3 * crowd : crowd)};
    }

    /* An arrow's curve for the places that nodes have now; found once, whatever is chosen. */
    function curveOf(edge, width) {
      const place = Math.max(0, headspan.pairs.pairings.indexOf(edge.pairing));
      const key = `${drawn.key} ${width.toFixed(1)}`;
      if (!curves.has(edge)) curves.set(edge, new Map());
      const own = curves.get(edge);
      if (!own.has(key)) {
        if (own.size > 3) own.clear();
        own.set(key, headspan.layout.arrow(drawn.nodes.get(edge.src), drawn.nodes.get(edge.dst), place, width));
      }
      return own.get(key);
    }

    function drawEdges(view, list, path) {
      const crowd = Math.min(1, Math.max(0.35, (150 / Math.max(1, list.length)) ** 0.5));
      const ends = view.head ? headspan.labels.ends(view.head) : [];
      const onPath = new Set(path.map((edge) => edge.row));
      const isOwn = (edge) => (onPath.size ? onPath.has(edge.row) : edge.src === view.head || ends.includes(edge.dst));
      const focused = Boolean(view.head) || onPath.size > 0;
      if (list !== listed || drawn.key !== placed) lay(list, crowd);
      drawn.edges = shown.map(({edge, element, back}) => {
        const own = focused && isOwn(edge);
        return {edge, own, element, points: back.points, faint: focused && !own};
      });
      focus(focused, crowd);
    }

    /* All edges as they are while nothing is chosen, strong ones in front. */
    let shown = [], placed = "", front = [], low = 0, high = 0;
    function lay(list, crowd) {
      const scores = list.filter((edge) => !edge.words).map((edge) => edge.score);
      [low, high] = [Math.min(...scores), Math.max(...scores)];
      const known = list.filter((edge) => drawn.nodes.has(edge.src) && drawn.nodes.has(edge.dst));
      shown = [...known.filter((edge) => edge.tier !== "strong"), ...known.filter((edge) => edge.tier === "strong")].map((edge, place) => {
        const {width, opacity} = lineOf(edge, low, high, false, crowd), element = elementOf(edge), back = curveOf(edge, width);
        change(element, {d: back.d, "stroke-width": width.toFixed(2), opacity: opacity.toFixed(2)});
        return {edge, element, back, place, width, opacity};
      });
      edgeLayer.replaceChildren(...shown.map((each) => each.element));
      ownLayer.replaceChildren();
      [listed, placed, front] = [list, drawn.key, []];
    }

    /* The edges of what is chosen stand in a layer of their own; the others stay as they are, and their layer turns pale as a
       whole: a thousand single changes would cost more than the rest of a click. */
    function focus(focused, crowd) {
      for (const {element, back, place, width, opacity} of front.reverse()) {
        change(element, {d: back.d, "stroke-width": width.toFixed(2), opacity: opacity.toFixed(2)});
        edgeLayer.insertBefore(element, shown[place + 1]?.element ?? null);
      }
      front = shown.filter((_, i) => drawn.edges[i].own);
      for (const {edge, element} of front) {
        const {width, opacity} = lineOf(edge, low, high, true, crowd);
        change(element, {d: curveOf(edge, width).d, "stroke-width": width.toFixed(2), opacity: opacity.toFixed(2)});
      }
      ownLayer.append(...front.map((each) => each.element));
      change(edgeLayer, {opacity: focused ? FAINT : 1});
    }

    function elementOf(edge) {
      if (!paths.has(edge)) paths.set(edge, svg("path", {class: `edge ${edge.words ? "more" : edge.pairing}`,
        "data-edge": `${edge.src}-${edge.dst}-${edge.pairing}`, "data-tier": edge.tier}));
      return paths.get(edge);
    }

    function drawNode(node, view, busy) {
      const names = headspan.sets.of(node.id, view), color = names.length ? headspan.sets.color(names[0], view) : null;
      return svg("g", {...state(node, view, busy), "data-head": node.id, role: "button", transform: `translate(${node.x} ${node.y})`},
      svg("rect", {x: -node.w / 2, y: -node.h / 2, width: node.w, height: node.h, rx: node.kind === "kv" ? 2 : node.h / 2,
        style: color ? {"--set": color} : {}, class: color ? "colored" : null}),
      view.pins.includes(node.id) ? svg("circle", {class: "pin", cx: node.w / 2 - 2, cy: -node.h / 2 + 2, r: 3.5}) : null,
      node.text ? svg("text", {y: 3.6, "text-anchor": "middle"}, node.text) : null);
    }

    /* Nodes are made anew where they stand elsewhere or sets have changed, else they change in place. */
    function drawNodes(view, busy) {
      const key = `${drawn.key} ${JSON.stringify([view.sets, view.pins])}`;
      if (key !== laid || !nodeLayer.childElementCount) {
        shapes.clear();
        for (const node of drawn.nodes.values()) shapes.set(node.id, drawNode(node, view, busy));
        nodeLayer.replaceChildren(...shapes.values());
        laid = key;
      } else for (const node of drawn.nodes.values()) change(shapes.get(node.id), state(node, view, busy));
    }

    function state(node, view, busy) {
      const chosen = node.id === view.head || node.id === view.with;
      const dimmed = !busy.has(node.id) && !chosen;
      const words = [node.id, ...headspan.sets.of(node.id, view), `${busy.get(node.id) ?? 0} pairs drawn`].join(", ");
      return {class: `node ${node.kind}${chosen ? " chosen" : ""}${dimmed ? " quiet" : ""}`, "aria-label": words,
        "aria-pressed": chosen ? "true" : "false"};
    }

    /* The frame, the layers' names and the ties of shared keys: they stay while nodes stand where they stood. */
    function drawFrame(width, height, nodes, layers) {
      for (const [name, value] of Object.entries({viewBox: `0 0 ${width} ${height}`, height, width})) picture.setAttribute(name, value);
      const every = Math.ceil(11 / (layers.length > 1 ? Math.abs(layers[1][1] - layers[0][1]) : 99));
      axis.replaceChildren(...layers.filter((_, i) => i % every === 0).map(([layer, y]) => svg("text", {x: 4, y: y + 4}, `L${layer}`)));
      ties.setAttribute("d", [...nodes.values()].filter((node) => headspan.labels.grouped && node.kind === "head").map((node) => {
        const shared = nodes.get(headspan.labels.keyOf(node.id));
        return `M${node.x} ${node.y}L${shared.x} ${shared.y}`;
      }).join(""));
    }

    function show(view, chosenMetric, list, path, room) {
      metric = chosenMetric;
      hide();
      const width = Math.max(280, room.width), key = `${width} ${room.height} ${view.layers} ${view.kinds}`;
      if (key !== drawn.key) {
        const {nodes, height, layers} = headspan.layout.places(view, width, room.height);
        drawn = {nodes, edges: [], key};
        drawFrame(width, height, nodes, layers);
      }
      drawEdges(view, list, path);
      const busy = new Map();
      for (const {edge, own} of drawn.edges)
        for (const id of [edge.src, edge.dst]) if (own || !view.head) busy.set(id, (busy.get(id) ?? 0) + 1);
      drawNodes(view, busy);
    }

    const inside = (event) => {
      const frame = picture.getBoundingClientRect(), scale = picture.viewBox.baseVal.width / frame.width || 1;
      return [(event.clientX - frame.left) * scale, (event.clientY - frame.top) * scale];
    };

    /* What is at a point: a node first, then the nearest edge, those in front before those that are faint. */
    function hit([x, y]) {
      for (const node of drawn.nodes.values())
        if (Math.abs(x - node.x) <= node.w / 2 + 1 && Math.abs(y - node.y) <= node.h / 2 + 1) return {node};
      let best = null, least = NEAR;
      for (const each of drawn.edges) {
        const away = each.faint ? Infinity : distance([x, y], each.points());
        if (away < least) [best, least] = [each, away];
      }
      return best && {edge: best};
    }

    function hide() {
      tip.hidden = true;
      hovered?.classList.remove("hovered");
      hovered = null;
    }

    /* A few words beside what the pointer is at, never on top of it. */
    function tell(lines, [x, y], gap) {
      tip.replaceChildren(...lines.map((line, i) => make(i ? "div" : "b", {}, line)));
      tip.hidden = false;
      const [w, h] = [tip.offsetWidth, tip.offsetHeight], room = box.clientWidth;
      tip.style.left = `${Math.max(0, Math.min(room - w, x - w / 2))}px`;
      tip.style.top = `${y - gap - h >= 0 ? y - gap - h : y + gap}px`;
    }

    function moved(event) {
      const point = inside(event), found = hit(point);
      hide();
      picture.style.cursor = found ? "pointer" : "";
      if (!found) return;
      if (found.node) {
        const {id, x, y, h} = found.node, names = headspan.sets.of(id);
        tell([id, ...(names.length ? [names.join(", ")] : [])], [x, y], h / 2 + 8);
        return;
      }
      hovered = found.edge.element;
      hovered.classList.add("hovered");
      tell(headspan.words.pair(found.edge.edge, metric), point, 16);
    }

    function clicked(event) {
      const found = hit(inside(event));
      hide();
      if (found?.node) headspan.card.open(found.node.id);
      else if (found?.edge) headspan.card.open(found.edge.edge.dst, {other: found.edge.edge.src});
    }

    picture.addEventListener("pointermove", moved);
    picture.addEventListener("pointerleave", hide);
    picture.addEventListener("click", clicked);
    const clear = () => {
      for (const layer of [edgeLayer, ownLayer, nodeLayer]) layer.replaceChildren();
      [listed, drawn] = [null, {nodes: new Map(), edges: [], key: ""}];
    };
    return {show, clear, element: picture, drawn: () => drawn};
  }

  return {build};
})();

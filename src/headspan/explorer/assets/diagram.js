"use strict";
/* One wiring diagram as SVG: edges below, nodes above. What the pointer means is found by geometry: a node where it is in a
   node's box, else the nearest edge within a few pixels. */
headspan.diagram = (() => {
  const {make, svg} = headspan.dom;
  const NEAR = 6;

  function build(box, title) {
    const arrows = headspan.arrows.build(), nodes = headspan.nodes.build();
    const axis = svg("g", {class: "axis"}), ties = svg("path", {class: "ties"});
    const picture = svg("svg", {class: "wires", role: "group", "aria-label": title, tabindex: "0",
      "aria-description": "Arrow keys go from head to head, Enter goes to the card"}, axis, ties, arrows.layers, nodes.layer);
    const tip = make("div", {class: "tip", role: "status", hidden: true});
    box.replaceChildren(picture, tip);
    let places = {nodes: new Map(), key: ""}, metric = null, hovered = null;

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

    /* Nodes first where they stand elsewhere, else the arrows of what is chosen. */
    function show(view, chosenMetric, list, path, room) {
      metric = chosenMetric;
      hide();
      const width = Math.max(280, room.width), key = `${width} ${room.height} ${view.layers} ${view.kinds}`, stay = key === places.key;
      if (!stay) {
        const {nodes: found, height, layers} = headspan.layout.places(view, width, room.height);
        places = {nodes: found, key};
        drawFrame(width, height, found, layers);
      }
      arrows.show(list, places, view, path);
      const parts = [nodes.lay(places.nodes, view, arrows.tally()), arrows.lay()];
      headspan.frames.begin(picture, (function* all() { for (const part of stay ? parts.reverse() : parts) yield* part; })());
    }

    const inside = (event) => {
      const frame = picture.getBoundingClientRect(), scale = picture.viewBox.baseVal.width / frame.width || 1;
      return [(event.clientX - frame.left) * scale, (event.clientY - frame.top) * scale];
    };

    /* What is at a point: a node first, then the nearest edge. */
    function hit([x, y]) {
      for (const node of places.nodes.values())
        if (Math.abs(x - node.x) <= node.w / 2 + 1 && Math.abs(y - node.y) <= node.h / 2 + 1) return {node};
      return arrows.hit([x, y], NEAR);
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
      hovered = found.element;
      hovered.classList.add("hovered");
      tell(headspan.words.pair(found.edge, metric), point, 16);
    }

    function clicked(event) {
      const found = hit(inside(event));
      hide();
      if (found?.node) headspan.card.open(found.node.id);
      else if (found?.edge) headspan.card.open(found.edge.dst, {other: found.edge.src});
    }

    picture.addEventListener("pointermove", moved);
    picture.addEventListener("pointerleave", hide);
    picture.addEventListener("click", clicked);
    const clear = () => {
      headspan.frames.drop(picture);
      arrows.clear();
      nodes.clear();
      places = {nodes: new Map(), key: ""};
    };
    return {show, clear, element: picture, edges: arrows.all};
  }

  return {build};
})();

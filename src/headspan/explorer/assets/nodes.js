"use strict";
/* The nodes of one diagram. A node keeps its elements, and only what differs is written: where it stands, whether it is
   chosen, the colors of its sets, its pin. Places are coordinates: a transform would make each node a layer of its own. */
headspan.nodes = (() => {
  const {svg, change} = headspan.dom;

  function build() {
    const layer = svg("g", {class: "nodes"}), shapes = new Map();

    function shapeOf(id) {
      if (!shapes.has(id)) {
        const [rect, text] = [svg("rect"), svg("text", {"text-anchor": "middle"})];
        shapes.set(id, {rect, text, pin: svg("circle", {class: "pin", r: 3.5}), color: null,
          group: svg("g", {"data-head": id, role: "button"}, rect, text)});
      }
      return shapes.get(id);
    }

    function state(node, view, busy) {
      const chosen = node.id === view.head || node.id === view.with, count = busy.get(node.id) ?? 0;
      const words = [node.id, ...headspan.sets.of(node.id, view), `${count} pairs drawn`].join(", ");
      // Until a head is chosen, the card is about the most interesting one.
      const carded = !view.head && node.id === headspan.record.interesting;
      return {class: `node ${node.kind}${chosen ? " chosen" : ""}${carded ? " carded" : ""}${count || chosen ? "" : " quiet"}`, "aria-label": words,
        "aria-pressed": chosen ? "true" : "false"};
    }

    /* Whether anything had to be written. */
    function write(node, view, busy) {
      const shape = shapeOf(node.id), {group, rect, text, pin} = shape, {x, y, w, h} = node;
      const color = headspan.sets.shade(node.id, view), pinned = view.pins.includes(node.id);
      const wrote = [change(group, state(node, view, busy)),
        change(rect, {x: x - w / 2, y: y - h / 2, width: w, height: h, rx: node.kind === "kv" ? 2 : h / 2, class: color ? "colored" : ""}),
        change(text, {x, y: y + 3.6}), text.textContent !== node.text, color !== shape.color, pinned !== pin.isConnected];
      if (wrote[3]) text.textContent = node.text;
      if (wrote[4]) {
        rect.style.setProperty("--set", color ?? "");
        shape.color = color;
      }
      change(pin, {cx: x + w / 2 - 2, cy: y - h / 2 + 2});
      if (wrote[5]) pinned ? group.append(pin) : pin.remove();
      return wrote.some(Boolean);
    }

    /* Nodes with arrows first: what is chosen shows at once, the others turn quiet in the frames that follow. */
    function* lay(nodes, view, busy) {
      for (const group of [...layer.children]) if (!nodes.has(group.dataset.head)) group.remove();
      for (const id of [view.head, view.with, ...(view.head ? busy.keys() : [])])
        if (nodes.has(id) && write(nodes.get(id), view, busy)) yield;
      let at = layer.firstChild;
      for (const node of nodes.values()) {
        let wrote = write(node, view, busy);
        const {group} = shapeOf(node.id);
        if (group === at) at = at.nextSibling;
        else {
          layer.insertBefore(group, at);
          wrote = true;
        }
        if (wrote) yield;
      }
    }

    return {layer, lay, clear: () => layer.replaceChildren()};
  }

  return {build};
})();

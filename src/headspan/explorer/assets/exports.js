"use strict";
/* Exactly what the diagram draws, as a file: SVG and PNG with the colors on the screen, GraphML and CSV with the numbers. */
headspan.exports = (() => {
  const STYLES = ["fill", "stroke", "stroke-width", "opacity", "font-family", "font-size", "font-weight", "stroke-opacity", "stroke-dasharray"];
  const name = () => `${headspan.record.model.name.replace(/[^A-Za-z0-9._-]+/g, "-")}-wiring`;

  /* A picture of its own: every element carries the style that the page gives it. */
  function picture() {
    const shown = headspan.wiring.diagram.element, copy = shown.cloneNode(true);
    const originals = [shown, ...shown.querySelectorAll("*")], copies = [copy, ...copy.querySelectorAll("*")];
    originals.forEach((element, i) => {
      const style = getComputedStyle(element);
      copies[i].removeAttribute("style");
      for (const key of STYLES) copies[i].setAttribute(key, style.getPropertyValue(key));
      for (const each of ["class", "tabindex", "role", "aria-pressed"]) copies[i].removeAttribute(each);
    });
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    const back = headspan.dom.svg("rect", {width: "100%", height: "100%", fill: getComputedStyle(headspan.root).getPropertyValue("--paper").trim()});
    copy.prepend(back);
    return new XMLSerializer().serializeToString(copy);
  }

  async function png() {
    const shown = headspan.wiring.diagram.element, scale = 3;
    const image = new Image();
    image.src = URL.createObjectURL(new Blob([picture()], {type: "image/svg+xml"}));
    await image.decode();
    const canvas = Object.assign(document.createElement("canvas"), {width: shown.clientWidth * scale, height: shown.clientHeight * scale});
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    URL.revokeObjectURL(image.src);
    return new Promise((done) => { canvas.toBlob(done, "image/png"); });
  }

  const drawn = () => headspan.wiring.diagram.edges();

  /* Edges of other nodes than heads have a score of their own kind, and so columns of their own. */
  function csv() {
    const {metric} = headspan.state.get(), edges = drawn().reverse(), {more, pairs} = headspan.record;
    const nulls = pairs.nulls.flatMap((each) => [`expected_${each}`, `p_${each}`, `q_${each}`]);
    const numbers = (edge, name) => {
      const found = edge.nulls.find((one) => one.name === name);
      return [found?.expected ?? NaN, found?.p ?? NaN, found?.q ?? NaN];
    };
    const others = edges.some((edge) => edge.words) ? [more.metric, `expected_${more.metric}`, `p_${more.metric}`, `q_${more.metric}`] : [];
    return headspan.csv.rows(["src", "dst", "pairing", "tier", metric, ...nulls, ...others], edges.map((edge) => [edge.src, edge.dst,
      edge.pairing, edge.tier, edge.words ? NaN : edge.score, ...pairs.nulls.flatMap((each) => numbers(edge, each)),
      ...(others.length ? [edge.words ? edge.score : NaN, ...numbers(edge, "expected")] : [])]));
  }

  const escaped = (value) => String(value).replace(/[&<>"]/g, (each) => ({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})[each]);

  function graphml() {
    const {metric} = headspan.state.get();
    const edges = drawn().map((edge) => ({...edge, metric: edge.words ? headspan.record.more.metric : metric}));
    const labels = [...new Set(edges.flatMap((edge) => [edge.src, edge.dst]))];
    const keys = [["layer", "node", "long"], ["kind", "node", "string"], ["sets", "node", "string"], ["pairing", "edge", "string"],
      ["tier", "edge", "string"], ["metric", "edge", "string"], ["score", "edge", "double"], ["expected", "edge", "double"], ["q", "edge", "double"]];
    const data = (key, value) => (value === null || value === undefined || Number.isNaN(value) ? "" : `<data key="${key}">${escaped(value)}</data>`);
    const node = (label) => {
      const {layer, kind} = headspan.labels.read(label);
      return `<node id="${escaped(label)}">${data("layer", layer)}${data("kind", kind)}${data("sets", headspan.sets.of(label).join("; "))}</node>`;
    };
    return `<?xml version="1.0" encoding="UTF-8"?>\n<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n${
      keys.map(([id, of, type]) => `<key id="${id}" for="${of}" attr.name="${id}" attr.type="${type}"/>`).join("\n")}\n<graph edgedefault="directed">\n${
      labels.map(node).join("\n")}\n${edges.map((edge) => `<edge source="${escaped(edge.src)}" target="${escaped(edge.dst)}">${
        ["pairing", "tier", "metric", "score", "expected", "q"].map((key) => data(key, edge[key])).join("")}</edge>`).join("\n")}\n</graph>\n</graphml>\n`;
  }

  async function save(kind) {
    headspan.frames.finish();
    if (kind === "SVG") headspan.csv.save(`${name()}.svg`, picture(), "image/svg+xml");
    else if (kind === "PNG") headspan.csv.save(`${name()}.png`, await png());
    else if (kind === "GraphML") headspan.csv.save(`${name()}.graphml`, graphml(), "application/xml");
    else headspan.csv.save(`${name()}.csv`, csv());
  }

  return {save, picture, graphml, csv};
})();

"use strict";
/* Small line plots in the side panel: a few curves over their index, drawn as SVG with the page's own colors. */
headspan.sparks = (() => {
  const WIDTH = 320, HEIGHT = 96, LEFT = 34, BOTTOM = 16, TOP = 6;
  const {svg} = headspan.dom;

  function path(values, x, y) {
    let text = "", pen = false;
    values.forEach((value, i) => {
      if (!Number.isFinite(value)) pen = false;
      else {
        text += `${pen ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
        pen = true;
      }
    });
    return text;
  }

  /* `lines`: name, color, values, and whether it is dashed. `unit` follows the numbers of the upright axis. */
  function plot(title, lines, {unit = "", across = "", top = null} = {}) {
    const values = lines.flatMap((line) => Array.from(line.values)).filter(Number.isFinite);
    const length = Math.max(...lines.map((line) => line.values.length));
    const high = top ?? Math.max(...values);
    const x = (i) => LEFT + (i / Math.max(1, length - 1)) * (WIDTH - LEFT - 4);
    const y = (value) => TOP + (1 - value / (high || 1)) * (HEIGHT - TOP - BOTTOM);
    const label = (text, at, anchor = "end") => svg("text", {x: at[0], y: at[1], "text-anchor": anchor}, text);
    return svg("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "spark", role: "img", "aria-label": title},
      svg("title", {}, title),
      svg("path", {class: "axis", d: `M${LEFT} ${TOP}V${HEIGHT - BOTTOM}H${WIDTH - 2}`}),
      label(`${headspan.words.number(high, 2)}${unit}`, [LEFT - 4, TOP + 7]),
      label("0", [LEFT - 4, HEIGHT - BOTTOM]),
      label(across, [WIDTH - 4, HEIGHT - 3]),
      lines.map((line) => svg("path", {class: "line", style: {stroke: line.color}, "data-name": line.name,
        "stroke-dasharray": line.dashed ? "3 3" : null, d: path(Array.from(line.values), x, y)})));
  }

  function key(lines) {
    return headspan.dom.make("p", {class: "key"}, lines.map((line) => headspan.dom.make("span", {},
      headspan.dom.make("i", {style: {background: line.color}, class: line.dashed ? "dashed" : null}), line.name)));
  }

  return {plot, key};
})();

"use strict";
/* The chosen head, marked in every figure that shows it: a ring around its point or cell, a band along its row and
   column of a matrix of pairs. */
headspan.marks = (() => {
  const MOST = 400;
  const color = () => getComputedStyle(document.documentElement).getPropertyValue("--mark").trim();

  function ring(trace, x, y, symbol, size) {
    return {type: "scatter", mode: "markers", x, y, xaxis: trace.xaxis, yaxis: trace.yaxis, hoverinfo: "skip",
      showlegend: false, cliponaxis: false,
      marker: {symbol, size, color: color(), line: {width: 2.5, color: color()}}};
  }

  function pointRing(trace, head) {
    const x = [], y = [];
    for (let i = 0; i < trace.x.length && x.length < MOST; i++)
      if (headspan.naming.named(trace, i).includes(head)) {
        x.push(trace.x[i]);
        y.push(trace.y[i]);
      }
    return x.length ? [ring(trace, x, y, "circle-open", size(trace) + 5)] : [];
  }

  const size = (trace) => (typeof trace.marker?.size === "number" ? trace.marker.size : 8);

  const place = (axis, i) => (typeof axis?.[i] === "number" ? axis[i] : i);

  function band(trace, along, i) {
    const [axis, ref] = along === "y" ? [trace.y, trace.yaxis ?? "y"] : [trace.x, trace.xaxis ?? "x"];
    const [otherRef] = along === "y" ? [trace.xaxis ?? "x"] : [trace.yaxis ?? "y"];
    const at = place(axis, i);
    // Beside a thin row, not over it.
    const half = trace.z.length > 60 ? 1.5 : 0.5;
    const other = along === "y" ? "x" : "y";
    return {type: "rect", layer: "above", line: {width: 1.5, color: color()}, fillcolor: "rgba(0,0,0,0)",
      [`${along}ref`]: ref, [`${along}0`]: at - half, [`${along}1`]: at + half,
      [`${other}ref`]: `${otherRef} domain`, [`${other}0`]: 0, [`${other}1`]: 1};
  }

  function cellMarks(trace, head) {
    const rows = trace.z.length, columns = trace.z[0]?.length ?? 0;
    const x = [], y = [], shapes = [];
    const pairsShown = headspan.naming.named(trace, [0, Math.min(1, columns - 1)]).length === 2;
    if (pairsShown) {
      for (let i = 0; i < rows; i++) if (headspan.naming.named(trace, [i, 0])[0] === head) shapes.push(band(trace, "y", i));
      for (let j = 0; j < columns; j++) if (headspan.naming.named(trace, [0, j])[1] === head) shapes.push(band(trace, "x", j));
      return {traces: [], shapes};
    }
    for (let i = 0; i < rows; i++)
      for (let j = 0; j < columns; j++)
        if (headspan.naming.named(trace, [i, j]).includes(head)) {
          x.push(trace.x ? trace.x[j] : j);
          y.push(trace.y ? trace.y[i] : i);
        }
    return {traces: x.length ? [ring(trace, x, y, "square-open", 13)] : [], shapes};
  }

  /* Traces and shapes that mark a head in a figure's traces. */
  function marks(data, head) {
    const traces = [], shapes = [];
    for (const trace of data) {
      if (trace.visible === false || trace.meta?.src || !headspan.naming.names(trace)) continue;
      if (trace.z) {
        const found = cellMarks(trace, head);
        traces.push(...found.traces);
        shapes.push(...found.shapes);
      } else if (trace.x && trace.y) traces.push(...pointRing(trace, head));
    }
    return {traces, shapes};
  }

  return {marks};
})();

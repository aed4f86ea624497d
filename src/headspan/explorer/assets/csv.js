"use strict";
/* Tables as CSV files, made here out of the data that the page carries. A number is written so that it reads back as
   exactly the same number; what is undefined is an empty cell. Text that a spreadsheet would take for a formula gets an
   apostrophe before it. */
headspan.csv = (() => {
  function cell(value) {
    if (value === null || value === undefined || Number.isNaN(value)) return "";
    const plain = value === Infinity ? "inf" : value === -Infinity ? "-inf" : String(value);
    const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${plain}` : plain;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }

  function text(name) {
    const {columns, length} = headspan.tables.table(name);
    const read = columns.map((each) => headspan.tables.column(name, each.name));
    const lines = [columns.map((each) => cell(each.name)).join(",")];
    for (let row = 0; row < length; row++) lines.push(read.map((each) => cell(each.at(row))).join(","));
    return lines.join("\r\n") + "\r\n";
  }

  /* What a figure draws, trace by trace: a row per point, or per cell of a heat map. */
  function drawnText(figure) {
    const {data, layout} = headspan.figures.spec(figure);
    const lines = ["panel,trace,x,y,z,text"];
    const plain = (value) => (typeof value === "string" ? unescaped(value) : value);
    for (const trace of data) {
      if (trace.x?.length === 1 && trace.x[0] === null) continue;
      const start = [panelTitle(layout, trace), plain(trace.name)];
      const told = (place) => (Array.isArray(place) ? place.map(plain).join(" ") : plain(place));
      const add = (x, y, z, note) => lines.push([...start, plain(x), plain(y), z, note].map(cell).join(","));
      if (trace.z) trace.z.forEach((line, i) => line.forEach((z, j) =>
        add(trace.x ? trace.x[j] : j, trace.y ? trace.y[i] : i, z, told(trace.customdata?.[i]?.[j]))));
      else Array.from(trace.x ?? [], (x, i) => add(x, trace.y[i], null,
        Array.isArray(trace.text) ? plain(trace.text[i]) : trace.meta?.src && `${trace.meta.src} ${trace.meta.dst}`));
    }
    return lines.join("\r\n") + "\r\n";
  }

  /* plotly's labels hold a few tags and entities; a file holds text. */
  const unescaped = (value) => value.replace(/<\/?(?:b|i|sub|sup)>|<br>/g, " ").replaceAll("&lt;", "<")
    .replaceAll("&gt;", ">").replaceAll("&amp;", "&").trim();

  function panelTitle(layout, trace) {
    const axis = layout[`xaxis${(trace.xaxis ?? "x").slice(1)}`], upright = layout[`yaxis${(trace.yaxis ?? "y").slice(1)}`];
    if (!axis?.domain || !upright?.domain) return "";
    const middle = (axis.domain[0] + axis.domain[1]) / 2;
    const title = (layout.annotations ?? []).find((each) => each.xref === "paper" && each.yref === "paper"
      && Math.abs(each.x - middle) < 1e-6 && Math.abs(each.y - upright.domain[1]) < 1e-6);
    return title ? unescaped(title.text) : "";
  }

  /* Rows of plain values under a header. */
  const rows = (header, lines) => [header, ...lines].map((line) => line.map(cell).join(",")).join("\r\n") + "\r\n";

  function save(file, content, type = "text/csv") {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], {type}));
    link.download = file;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  headspan.root.addEventListener("click", async (event) => {
    const button = event.target.closest("button[data-csv], .figure-head button");
    if (!button) return;
    const figure = button.closest("figure");
    await headspan.store.open("figures");
    if (button.dataset.csv) save(`${button.dataset.csv}.csv`, text(button.dataset.csv));
    else save(`${figure.id}.csv`, drawnText(figure));
  });
  return {text, drawnText, rows, save};
})();

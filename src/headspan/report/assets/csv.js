"use strict";
/* Tables as CSV files, made here out of the data that the page carries. A number is written so that it reads back as
   exactly the same number; what is undefined is an empty cell. */
headspan.csv = (() => {
  function cell(value) {
    if (value === null || value === undefined || Number.isNaN(value)) return "";
    const text = value === Infinity ? "inf" : value === -Infinity ? "-inf" : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }

  function text(name) {
    const {columns, length} = headspan.tables.table(name);
    const read = columns.map((each) => headspan.tables.column(name, each.name));
    const lines = [columns.map((each) => cell(each.name)).join(",")];
    for (let row = 0; row < length; row++) lines.push(read.map((each) => cell(each.at(row))).join(","));
    return lines.join("\r\n") + "\r\n";
  }

  function save(name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text(name)], {type: "text/csv"}));
    link.download = `${name}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-csv]");
    if (button) save(button.dataset.csv);
  });
  return {text, save};
})();

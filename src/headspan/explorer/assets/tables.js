"use strict";
/* What the page knows of its model, and its tables: columns by name, cells by row. */
headspan.tables = (() => {
  const known = new Map(headspan.record.tables.map((table) => [table.name, table]));
  const read = new Map();

  /* A column as `at(row)`; where it is stored as places in a list of values, also as `codes` and `values`. */
  function column(table, name) {
    const key = `${table}/${name}`;
    if (!read.has(key)) {
      const found = known.get(table)?.columns.find((each) => each.name === name);
      read.set(key, found === undefined ? null : opened(found));
    }
    return read.get(key);
  }

  function opened(found) {
    if (found.array) {
      const values = headspan.store.resolved(found.array);
      return {at: (row) => values[row]};
    }
    const codes = headspan.store.resolved(found.codes);
    const values = headspan.store.resolved(found.values);
    return {codes, values, at: (row) => values[codes[row]]};
  }

  const table = (name) => known.get(name);
  return {table, column};
})();

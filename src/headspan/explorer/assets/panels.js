"use strict";
/* Panels of a figure in as many columns as there is room for: three side by side on a desk, one below the other on a
   phone, and without the panels that a filter has emptied. Each keeps the height it had. */
headspan.panels = (() => {
  const ENOUGH = 600, LEAST = 290, ACROSS = 64, DOWN = 64, TITLE = 26;
  const axis = (layout, id) => layout[`${id[0]}axis${id.slice(1)}`] ?? {};
  const near = (a, b) => Math.abs(a - b) < 1e-6;

  /* The panels in reading order; null where the figure has only one, or is not laid out on a grid. */
  function panels({data, layout}) {
    const ids = new Map();
    for (const trace of data) ids.set(`${trace.xaxis ?? "x"} ${trace.yaxis ?? "y"}`, [trace.xaxis ?? "x", trace.yaxis ?? "y"]);
    const found = [...ids.values()].map(([x, y]) => ({x, y, across: axis(layout, x).domain, up: axis(layout, y).domain}));
    if (found.length < 2 || found.some((each) => !each.across || !each.up)) return null;
    // Color bars between panels have places of their own.
    if (layout.coloraxis2) return null;
    found.sort((a, b) => b.up[1] - a.up[1] || a.across[0] - b.across[0]);
    for (const each of found) each.shown = data.some((trace) => (trace.xaxis ?? "x") === each.x && trace.visible !== false);
    return found;
  }

  const title = (layout, {across, up}) => (layout.annotations ?? []).find((each) => each.xref === "paper"
    && each.yref === "paper" && near(each.x, (across[0] + across[1]) / 2) && near(each.y, up[1]));

  /* Where the panels go: pixels first, then shares of the new plot. */
  function grid(count, columns, heights, width, down) {
    const rows = Math.ceil(count / columns);
    const tall = rows * heights + (rows - 1) * down, wide = Math.max(columns * 120, width);
    const cell = (wide - (columns - 1) * ACROSS) / columns;
    return {tall, at: (place) => {
      const left = (place % columns) * (cell + ACROSS), top = Math.floor(place / columns) * (heights + down);
      return {across: [left / wide, Math.min(1, (left + cell) / wide)],
        up: [Math.max(0, 1 - (top + heights) / tall), 1 - top / tall]};
    }};
  }

  const moved = (legend, factor) => (legend?.y < 0 ? {...legend, y: Math.max(-2, legend.y * factor)} : legend);

  function placed(layout, all, plan, plot) {
    const next = {...layout, annotations: [...(layout.annotations ?? [])]};
    let place = 0;
    for (const each of all) {
      const own = title(layout, each);
      if (own) next.annotations.splice(next.annotations.indexOf(own), 1);
      const [x, y] = [`xaxis${each.x.slice(1)}`, `yaxis${each.y.slice(1)}`];
      if (!each.shown) {
        next[x] = {...layout[x], visible: false};
        next[y] = {...layout[y], visible: false};
        continue;
      }
      const {across, up} = plan.at(place++);
      next[x] = {...named(layout, x, all), domain: across};
      next[y] = {...named(layout, y, all), domain: up};
      // The panels of a row have one title between them, before the first.
      if (across[0] > 0 && !layout[y]?.title?.text) delete next[y].title;
      if (own) next.annotations.push({...own, x: (across[0] + across[1]) / 2, y: up[1]});
    }
    for (const key of ["legend", "legend2"]) if (next[key]) next[key] = moved(next[key], plot / plan.tall);
    const bar = layout.coloraxis?.colorbar;
    if (bar && plan.tall > 2 * plot)
      next.coloraxis = {...layout.coloraxis, colorbar: {...bar, lenmode: "pixels", len: 220, y: 1, yanchor: "top"}};
    return {...next, height: layout.height - plot + plan.tall};
  }

  /* An axis that left its title and numbers to the panel at the edge has them itself, now that it may stand there. */
  function named(layout, key, all) {
    const own = layout[key] ?? {};
    const lender = all.map((each) => layout[`${key[0]}axis${(key[0] === "x" ? each.x : each.y).slice(1)}`] ?? {})
      .find((each) => each.title?.text);
    const borrowed = own.title?.text || !lender ? {} : {title: lender.title};
    return {...own, ...borrowed, ...(own.matches && own.showticklabels === false ? {showticklabels: true} : {})};
  }

  /* Pixels that the longest title of a panel takes, by the number of its letters. */
  const LETTER = 0.5;
  const widest = (layout, all) => Math.max(...all.map((each) => {
    const own = title(layout, each);
    return own ? own.text.replace(/<[^>]*>/g, "").length * LETTER * (own.font?.size ?? 13) + 8 : 0;
  }));

  /* How many columns there is room for, as many as the figure was made with at most; titles do not run into each other. */
  function columns(made, width, plotWidth, widestTitle) {
    const panels_ = width >= ENOUGH ? made : Math.floor(width / LEAST), titles = Math.floor(plotWidth / (widestTitle || 1));
    return Math.max(1, Math.min(made, panels_, titles));
  }

  /* `figure` laid out for a box of this width; itself where nothing has to move. */
  function laid(figure, width) {
    const all = panels(figure);
    if (all === null) return figure;
    const count = all.filter((each) => each.shown).length;
    const margin = {t: 28, b: 48, l: 56, r: 24, ...figure.layout.margin};
    const made = new Set(all.map((each) => each.across[0].toFixed(3))).size, across = width - margin.l - margin.r;
    const fit = columns(Math.min(made, count), width, across, widest(figure.layout, all));
    if (count === 0 || (fit === made && count === all.length)) return figure;
    const plot = Math.max(120, figure.layout.height - margin.t - margin.b);
    const heights = plot * (all[0].up[1] - all[0].up[0]);
    // Below every panel there is room for the numbers of its axis, and for the axis's title where it has one.
    const down = DOWN + (all.some((each) => axis(figure.layout, each.x).title?.text) ? TITLE : 0);
    const plan = grid(count, fit, heights, across, down);
    return {data: figure.data, layout: placed(figure.layout, all, plan, plot)};
  }

  return {laid, panels};
})();

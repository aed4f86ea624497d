"use strict";
/* Figures are drawn when they come near the window, one per task, and drawn again when what they show has changed. While
   nothing is touched, those that are not folded are drawn ahead.
   A page may set `headspan.figures.hooks.dress`, which turns a figure as stored into the figure as shown. */
headspan.figures = (() => {
  const config = {responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "",
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"]};
  const all = [...headspan.root.querySelectorAll("figure.figure")];
  const box = (figure) => figure.querySelector(".plot");
  const near = new Set(), seen = new Set();
  const stored = new Map();
  const waiting = [];
  const after = [];
  let busy = false;
  const hooks = {dress: (figure, spec) => spec, metric: () => null};
  const least = new Map(all.map((figure) => [figure, box(figure).style.minWidth]));

  /* The figure as it is stored, for the score that is looked at; read once. */
  function spec(figure) {
    const metric = hooks.metric() ?? "";
    const specs = JSON.parse(figure.querySelector("script.spec").textContent);
    const key = metric in specs ? metric : Object.keys(specs)[0];
    const name = `${figure.id} ${key}`;
    if (!stored.has(name)) stored.set(name, headspan.store.resolved(specs[key]));
    return stored.get(name);
  }

  /* What drawing needs is unpacked when the first figure is near: the drawing library, and the arrays of figures. */
  const ready = () => Promise.all([headspan.home.plotly(), headspan.store.open("figures")]);

  const draw = async (figure) => paced(figure, (await ready())[0]);

  /* The page's first figure in three tasks, axes, a third of the traces and then all: most of what it costs is code of the
     library that has not run yet, which later figures do not pay. */
  let cold = true;
  async function paced(figure, Plotly) {
    if (cold) {
      cold = false;
      for (const count of [0, Math.ceil(spec(figure).data.length / 3)]) {
        await shape(figure, Plotly, count);
        await new Promise((done) => { setTimeout(done); });
      }
    }
    return paint(figure, Plotly, true);
  }

  function paint(figure, Plotly, calmly = false) {
    const place = box(figure), first = place.dataset.drawn !== "yes";
    delete figure.dataset.stale;
    const done = shape(figure, Plotly, Infinity, calmly);
    if (first) {
      place.dataset.drawn = "yes";
      for (const action of after) action(figure, place);
    }
    return done;
  }

  /* Put a figure's first traces into its box; where there is time, those that moved over what stays are moved only. */
  function shape(figure, Plotly, count = Infinity, calmly = false) {
    const place = box(figure), room = place.parentElement.clientWidth;
    const dressed = hooks.dress(figure, spec(figure));
    const shown = headspan.panels.laid(dressed, room);
    // A figure whose panels found room needs no width of its own.
    place.style.minWidth = headspan.panels.panels(dressed) ? "0" : least.get(figure);
    place.style.height = `${shown.layout.height}px`;
    const last = drawn.get(place), still = calmly && last?.layout === JSON.stringify(shown.layout);
    const moved = still ? moves(last.data, shown.data) : [];
    if (moved.length) {
      drawn.set(place, {...last, data: shown.data});
      return Plotly.animate(place, {traces: moved, data: moved.map((i) => ({y: shown.data[i].y}))}, AT_ONCE);
    }
    // Copies: moving writes into what was given.
    const data = shown.data.map((trace, i) => (i < count ? {...trace} : {...trace, visible: false}));
    const done = Plotly.react(place, data, shown.layout, config);
    // Plotly writes into the layout where axes end.
    if (count === Infinity) drawn.set(place, {layout: JSON.stringify(shown.layout), data: shown.data});
    return done;
  }

  /* Which traces are points that a filter has thinned out over a map that is as it was, by number; none where anything else
     has changed. Drawing the map again takes longer than a frame has, and axes end where it ends. */
  const drawn = new WeakMap();
  const AT_ONCE = {mode: "immediate", frame: {duration: 0, redraw: false}, transition: {duration: 0}};
  function moves(before, now) {
    if (before.length !== now.length) return [];
    const changed = now.map((trace, i) => i).filter((i) => !same(before[i], now[i], []));
    const over = (trace) => now.some((map, i) => map.type === "heatmap" && map.visible !== false && !changed.includes(i)
      && map.xaxis === trace.xaxis && map.yaxis === trace.yaxis);
    const moved = (i) => now[i].type === "scatter" && same(before[i], now[i], ["y"]) && over(now[i]);
    return changed.every(moved) ? changed : [];
  }

  const same = (one, other, but) => one === other || [...new Set([...Object.keys(one), ...Object.keys(other)])]
    .every((key) => but.includes(key) || one[key] === other[key]);

  /* Before printing: everything that is not folded. A browser does not wait, so what draws must be there already. */
  function print() {
    if (!globalThis.Plotly) ready();
    else for (const figure of all) if (needs(figure) && figure.checkVisibility()) paint(figure, globalThis.Plotly);
  }

  /* The diagram first: a figure waits until it is drawn. */
  const painted = (then) => requestAnimationFrame(() => setTimeout(then));

  async function next() {
    if (waiting.length && headspan.frames?.idle() === false) {
      painted(next);
      return;
    }
    const figure = waiting.shift();
    if (figure === undefined) {
      busy = false;
      return;
    }
    if (near.has(figure) && needs(figure)) await draw(figure);
    setTimeout(next);
  }

  const needs = (figure) => box(figure).dataset.drawn !== "yes" || "stale" in figure.dataset;

  function ask(figure) {
    if (needs(figure) && !waiting.includes(figure)) waiting.push(figure);
    if (!busy) {
      busy = true;
      setTimeout(next);
    }
  }

  /* Everything drawn so far shows something that has changed: draw again what is seen now, the rest when it is seen. */
  function refresh() {
    for (const figure of all) {
      if (box(figure).dataset.drawn === "yes") figure.dataset.stale = "";
      if (seen.has(figure)) ask(figure);
    }
  }

  /* Keep a set of the figures in the window, or within a margin of it, and draw what comes in. */
  function follow(set, rootMargin) {
    const observer = new IntersectionObserver((entries) => {
      for (const {target, isIntersecting} of entries) {
        if (isIntersecting) {
          set.add(target);
          ask(target);
        } else set.delete(target);
      }
    }, {rootMargin});
    for (const figure of all) observer.observe(figure);
  }

  function start() {
    follow(near, "25% 0px");
    follow(seen, "0px");
    for (const name of ["pointermove", "pointerdown", "keydown", "wheel", "scroll"])
      window.addEventListener(name, () => { touched = performance.now(); }, {passive: true, capture: true});
    if (all.length) setTimeout(() => later(ahead), PAUSE);
    let width = innerWidth, timer = null;
    window.addEventListener("resize", () => {
      clearTimeout(timer);
      if (innerWidth !== width) timer = setTimeout(() => {
        width = innerWidth;
        refresh();
      }, 200);
    });
  }

  /* While the reader looks at the first screen: what draws is unpacked, and figures that are not folded are drawn, one at a
     time and only where nothing was touched for two seconds, so that scrolling meets them drawn. */
  const PAUSE = 2000;
  const later = globalThis.requestIdleCallback ?? setTimeout;
  let touched = 0;
  const quiet = () => performance.now() - touched > PAUSE && !document.hidden && !busy;
  const left = () => all.find((figure) => box(figure).dataset.drawn !== "yes" && figure.checkVisibility());
  async function ahead() {
    if (!headspan.root.isConnected) return;
    if (quiet() && left()) {
      const [Plotly] = await ready();
      if (quiet() && left()) await paced(left(), Plotly);
    }
    setTimeout(() => later(ahead), left() ? PAUSE / 10 : PAUSE);
  }

  const idle = () => !busy && ![...seen].some(needs) && ![...near].some((figure) => box(figure).dataset.drawn !== "yes");
  const drawAll = async () => {
    for (const fold of headspan.root.querySelectorAll("details:not(.menu)")) fold.open = true;
    for (const figure of all) await draw(figure);
  };

  return {all, box, spec, draw, drawAll, print, refresh, start, idle, ready, hooks, whenDrawn: (action) => after.push(action)};
})();

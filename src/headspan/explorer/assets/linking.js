"use strict";
/* Figures and the rest of the page look at the same thing: clicks choose heads, and every figure shows the view. */
headspan.linking = (() => {
  const views = new WeakMap();
  const {root} = headspan;

  function dressed(figure, spec) {
    const view = headspan.state.get();
    views.set(figure, spec);
    const data = headspan.state.filtered() ? sifted(spec, view) : spec.data;
    if (!view.head) return {data, layout: spec.layout};
    const {traces, shapes} = headspan.marks.marks(data, view.head);
    const layout = {...spec.layout, shapes: [...(spec.layout.shapes ?? []), ...shapes]};
    return {data: [...data, ...traces], layout};
  }

  function sifted(spec, view) {
    if (headspan.recount.figure(spec)) return headspan.recount.ranking(spec, view);
    return spec.data.map((trace) => headspan.sieve.sieved(trace, view));
  }

  function clicked({points}) {
    const point = points[0];
    const index = Array.isArray(point.pointNumber) ? point.pointNumber : point.pointIndex ?? point.pointNumber;
    const [head, other] = headspan.naming.named(point.data, index);
    if (head) headspan.card.open(head, {other: other && other !== head ? other : null});
  }

  /* The first head that a figure shows, by layer and number; null where it shows none. */
  function firstHead(figure) {
    const found = new Set();
    for (const trace of (views.get(figure) ?? headspan.figures.spec(figure)).data) {
      if (!headspan.naming.names(trace)) continue;
      const count = trace.z ? trace.z.length : trace.x?.length ?? 0;
      for (let i = 0; i < count; i++)
        for (const head of headspan.naming.named(trace, trace.z ? [i, 0] : i)) found.add(head);
    }
    return [...headspan.labels.all, ...headspan.labels.kvs].find((label) => found.has(label)) ?? null;
  }

  headspan.figures.hooks.dress = dressed;
  headspan.figures.hooks.metric = () => headspan.state.get().metric;
  headspan.figures.whenDrawn((figure, place) => {
    place.on("plotly_click", clicked);
    if (views.get(figure).data.some((trace) => headspan.naming.names(trace))) {
      place.tabIndex = 0;
      place.setAttribute("aria-description", "Enter chooses a head, arrow keys go from head to head");
      figure.classList.add("of-heads");
    }
  });

  /* Links to heads and to sections keep the rest of the view. */
  root.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    if (link.dataset.head) headspan.card.open(link.dataset.head, {focus: event.detail === 0});
    else {
      const id = link.getAttribute("href").slice(1);
      headspan.state.set({at: id});
      goTo(id);
      link.closest("details.menu")?.removeAttribute("open");
    }
  });

  /* Scroll to a part of the page, unfolding what it is in. */
  function goTo(id) {
    const target = document.getElementById(id);
    for (let around = target; around; around = around.parentElement) if (around.tagName === "DETAILS") around.open = true;
    target?.scrollIntoView();
  }

  function showLinks(view) {
    for (const link of root.querySelectorAll("a.head")) link.classList.toggle("chosen", link.dataset.head === view.head);
    for (const caption of root.querySelectorAll(".caption[data-metric]"))
      caption.hidden = caption.dataset.metric !== view.metric;
  }

  headspan.state.listen((view, before) => {
    headspan.controls.show(view);
    headspan.card.show(view);
    headspan.wiring.show(view);
    headspan.maps.show(headspan.card.shown());
    showLinks(view);
    headspan.figures.refresh();
    headspan.home.selected?.(view);
    if (view.at && view.at !== before.at) goTo(view.at);
  });
  return {firstHead};
})();

"use strict";
/* The bar at the top: search, and the filters for pairing, layers, score and threshold. */
headspan.toolbar = (() => {
  const get = (id) => document.getElementById(id);
  const search = get("search"), found = get("search-note");
  const {layers} = headspan.record.heads;
  const STEPS = 200;
  let range = [0, 1], ranged = null;

  function look() {
    const head = headspan.labels.read(search.value);
    search.setAttribute("aria-invalid", String(search.value.trim() !== "" && !head));
    found.textContent = head || search.value.trim() === "" ? "" : "no such head; write L4H7 or 4.7";
    return head;
  }

  search.addEventListener("input", look);
  get("search-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const head = look();
    if (head) headspan.panel.open(head.label, {focus: true});
  });

  for (const name of headspan.pairs?.pairings ?? [])
    get(`pairing-${name}`).addEventListener("change", () => {
      const chosen = headspan.pairs.pairings.filter((each) => get(`pairing-${each}`).checked);
      headspan.state.set({pairings: chosen.length ? chosen : headspan.pairs.pairings});
    });

  for (const name of headspan.pairs?.metrics ?? [])
    get(`metric-${name}`).addEventListener("change", () => headspan.state.set({metric: name, min: null}));

  const low = get("layer-low"), high = get("layer-high");
  const chosenLayers = () => [Math.min(+low.value, +high.value), Math.max(+low.value, +high.value)];
  for (const select of [low, high]) select.addEventListener("change", () => headspan.state.set({layers: chosenLayers()}));

  const slider = get("threshold");
  const threshold = () => (+slider.value === 0 ? null
    : Number((range[0] + (slider.value / STEPS) * (range[1] - range[0])).toPrecision(4)));
  slider?.addEventListener("input", () => describe({...headspan.state.get(), min: threshold()}));
  slider?.addEventListener("change", () => headspan.state.set({min: threshold()}));
  get("clear").addEventListener("click", () => headspan.state.clear());
  const bar = get("bar");
  new ResizeObserver(() => document.body.style.setProperty("--bar", `${bar.offsetHeight}px`)).observe(bar);
  const toggle = get("filters-toggle");
  toggle.addEventListener("click", () => {
    const open = get("filters").classList.toggle("open");
    toggle.setAttribute("aria-expanded", String(open));
  });

  function describe(view) {
    if (!headspan.pairs) return;
    const [left, all] = headspan.pairs.count(view);
    const least = view.min === null ? "any" : headspan.words.number(view.min);
    get("threshold-note").textContent = `${least}: ${left.toLocaleString("en")} of ${all.toLocaleString("en")} pairs`;
  }

  function show(view) {
    for (const name of headspan.pairs?.pairings ?? []) get(`pairing-${name}`).checked = view.pairings.includes(name);
    for (const name of headspan.pairs?.metrics ?? []) get(`metric-${name}`).checked = view.metric === name;
    low.value = view.layers[0];
    high.value = view.layers[1];
    if (headspan.pairs) {
      if (ranged !== view.metric) [range, ranged] = [headspan.pairs.range(view.metric), view.metric];
      slider.value = view.min === null ? 0 : Math.round((STEPS * (view.min - range[0])) / (range[1] - range[0] || 1));
      slider.setAttribute("aria-valuetext", view.min === null ? "any score" : String(view.min));
    }
    search.value = view.head ?? "";
    look();
    describe(view);
    get("clear").hidden = !headspan.state.filtered();
    toggle.classList.toggle("active", headspan.state.filtered());
  }

  return {show, search};
})();

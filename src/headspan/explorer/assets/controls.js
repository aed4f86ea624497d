"use strict";
/* Controls made in one line, and the bar: search, pairings, layers and score, which act on everything that is shown. */
headspan.controls = (() => {
  const {make, button, place} = headspan.dom;
  const {upper} = headspan.words;

  function chip(kind, group, label, {mark = "", checked, onchange}) {
    const box = make("input", {type: kind, name: `${group}-${headspan.id}`, value: label, onchange});
    const words = make("span", {}, label);
    const element = make("label", {class: `choice ${mark}`.trim(), [`data-${group}`]: mark || label}, box, words);
    return {element, words, show: (view) => { box.checked = checked(view); }};
  }

  function slider(name, {steps = 100, text, oninput}) {
    const note = make("output", {});
    const input = make("input", {type: "range", min: 0, max: steps, value: 0, "aria-label": name,
      oninput: () => { note.textContent = text(+input.value); }, onchange: () => oninput(+input.value)});
    return {element: make("label", {class: "slider"}, make("span", {}, name), input, note), input, note,
      show: (value, words) => { input.value = value; note.textContent = words; input.setAttribute("aria-valuetext", words); }};
  }

  const group = (name, ...children) => make("span", {class: "group", role: "group", "aria-label": name}, make("span", {}, name), children);

  /* A button that unfolds a few controls; only one is open at a time. */
  function menu(name, ...children) {
    const body = make("div", {class: "menu-body"}, children);
    const found = make("details", {class: "menu", ontoggle: () => {
      if (!found.open) return;
      for (const other of headspan.root.querySelectorAll("details.menu[open]")) if (other !== found) other.open = false;
      body.classList.toggle("leftward", found.getBoundingClientRect().left + body.offsetWidth > headspan.root.getBoundingClientRect().right);
    }}, make("summary", {}, name), body);
    return {element: found, body};
  }
  document.addEventListener("click", (event) => {
    for (const open of headspan.root.querySelectorAll("details.menu[open]")) if (!open.contains(event.target)) open.open = false;
  });

  const bar = place("bar");
  const search = make("input", {type: "text", class: "search", autocomplete: "off", spellcheck: "false", size: 7,
    placeholder: "L4H7", "aria-label": "Find a head"});
  const found = make("span", {class: "search-note", role: "status"});
  const {layers} = headspan.record.heads;
  const pairs = headspan.pairs;

  function look() {
    const head = headspan.labels.read(search.value);
    search.setAttribute("aria-invalid", String(search.value.trim() !== "" && !head));
    found.textContent = head || search.value.trim() === "" ? "" : "no such head; write L4H7 or 4.7";
    return head;
  }

  const chips = (pairs?.pairings ?? []).map((name) => chip("checkbox", "pairing", name, {mark: name,
    checked: (view) => view.pairings.includes(name),
    onchange: () => {
      const before = headspan.state.get().pairings;
      const after = pairs.pairings.filter((each) => (each === name ? !before.includes(each) : before.includes(each)));
      headspan.state.set({pairings: after.length ? after : pairs.pairings});
    }}));
  const scores = pairs && pairs.metrics.length > 1 ? [...pairs.metrics.map((name) => chip("radio", "metric",
    upper(headspan.words.metricNames[name]), {checked: (view) => view.metric === name && !view.beside,
      onchange: () => headspan.state.set({metric: name, min: null, beside: false})})),
  chip("radio", "metric", "Both", {checked: (view) => view.beside, onchange: () => headspan.state.set({beside: true})})] : [];
  const select = (name) => make("select", {"aria-label": name, onchange: () => {
    const range = [+low.value, +high.value];
    headspan.state.set({layers: [Math.min(...range), Math.max(...range)]});
  }}, layers.map((layer) => make("option", {value: layer}, layer)));
  const low = select("First layer"), high = select("Last layer");
  /* On a phone the filters are behind one button, so that the diagram is on the first screen. */
  const unfold = button("Filters", () => {
    const open = headspan.root.classList.toggle("filtering");
    unfold.setAttribute("aria-expanded", String(open));
  }, {class: "unfold", "aria-expanded": "false"});
  /* Menus of the diagram stand at the end of the bar. */
  const tools = make("span", {class: "group tools", role: "group", "aria-label": "Sets, paths and files"});
  const clear = button("Clear filters", () => headspan.state.clear(), {class: "clear", hidden: true});
  bar.append(
    make("form", {class: "search-form", role: "search", onsubmit: (event) => {
      event.preventDefault();
      const head = look();
      if (head) headspan.card.open(head.label, {focus: true});
    }}, make("span", {}, "Head"), search, found), ...(pairs || layers.length > 1 ? [unfold] : []),
    ...(chips.length > 1 ? [group("Pairing", chips.map((each) => each.element))] : []),
    ...(scores.length ? [group("Score", scores.map((each) => each.element))] : []),
    ...(layers.length > 1 ? [group("Layers", low, make("span", {}, "to"), high)] : []), tools, clear);
  search.addEventListener("input", look);

  function show(view) {
    for (const each of [...chips, ...scores]) each.show(view);
    [low.value, high.value] = view.layers;
    search.value = view.head ?? "";
    look();
    clear.hidden = !headspan.state.filtered();
  }

  return {show, search, chip, slider, menu, group, bar, tools};
})();

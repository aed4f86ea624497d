"use strict";
/* What Python answers in a notebook: a new prompt, a head scaled or ablated, another range of layers, the channels of a
   pair. On a page nobody answers, and none of this is there. */
headspan.live = (() => {
  if (!headspan.home.ask) return null;
  const {make, button, place} = headspan.dom;
  const area = place("live"), scales = new Map();
  const prompt = make("textarea", {rows: 2, "aria-label": "Prompt", placeholder: "Type a prompt"});
  prompt.value = headspan.record.prompt ?? "";
  const status = make("p", {class: "quiet", role: "status"});
  const text = make("div", {class: "texts"});
  const {layers} = headspan.record.model_layers ? {layers: headspan.record.model_layers} : headspan.record.heads;
  const pick = (name, value) => {
    const found = make("select", {"aria-label": name}, layers.map((layer) => make("option", {value: layer}, layer)));
    found.value = value;
    return found;
  };
  const low = pick("First layer to open", headspan.record.heads.layers[0]), high = pick("Last layer to open", headspan.record.heads.layers.at(-1));

  /* Ask Python; what it cannot do it says in one line. */
  async function asked(question) {
    status.textContent = "Computing …";
    const answer = await headspan.home.ask(question);
    status.textContent = answer.problem ?? "";
    return answer.problem ? null : answer;
  }

  function showTexts({before, after}) {
    const line = (name, words) => make("p", {}, make("b", {}, name), " ", make("span", {}, words));
    text.replaceChildren(...(before === undefined || before === null ? [] : [line("Unchanged:", before),
      after !== null && after !== undefined ? line(`${[...scales].map(([label, scale]) => `${label} × ${scale}`).join(", ")}:`, after) : ""].filter(Boolean)));
  }

  async function run() {
    const answer = await asked({ask: "run", prompt: prompt.value, scales: Object.fromEntries(scales)});
    if (!answer) return;
    headspan.home.receive(answer);
    headspan.record.maps = answer.maps;
    showTexts(answer);
    headspan.maps.changed();
  }

  /* The controls of one head: how much of what it writes is left. */
  function head(label) {
    if (headspan.labels.read(label).kind !== "head" || !headspan.record.runs) return null;
    const note = make("output", {}, `× ${scales.get(label) ?? 1}`);
    const input = make("input", {type: "range", min: 0, max: 2, step: 0.1, "aria-label": `Scale what ${label} writes`, onchange: () => {
      if (+input.value === 1) scales.delete(label);
      else scales.set(label, +input.value);
      note.textContent = `× ${input.value}`;
      run();
    }});
    input.value = scales.get(label) ?? 1;
    return make("div", {class: "row live-head"}, make("span", {}, "Its output"), input, note,
      button("Ablate", () => { input.value = 0; input.dispatchEvent(new Event("change")); }, {class: "small"}),
      button("Restore", () => { input.value = 1; input.dispatchEvent(new Event("change")); }, {class: "small"}));
  }

  /* What lenses of single pairs say, when it is asked for. */
  function pair(label, other) {
    const box = make("div", {});
    const ask = button("Ask for this pair's channels", async () => {
      const answer = await asked({ask: "pair", heads: [label, other]});
      if (answer) box.replaceChildren(...answer.lines.map((line) => make("p", {}, line)));
    }, {class: "small"});
    return make("div", {}, ask, box);
  }

  area.append(
    ...(headspan.record.runs ? [make("form", {class: "row", onsubmit: (event) => { event.preventDefault(); run(); }}, prompt,
      make("button", {type: "submit"}, "Run"))] : []), text,
    ...(layers.length > 1 ? [make("div", {class: "row"}, make("span", {class: "quiet"}, "Layers"), low, make("span", {}, "to"), high,
      button("Open", () => asked({ask: "layers", low: +low.value, high: +high.value}), {class: "small"}))] : []), status);
  return {head, pair, run};
})();

"use strict";
/* Maps of heads over a text, such as attention: one large with its tokens, all of them small. White is nothing, full color
   the largest value; between tokens, or between words (summed over a word's keys, averaged over its queries). */
headspan.maps = (() => {
  const {make, headLink} = headspan.dom;
  const made = new Map();
  let level = "token";

  const all = () => headspan.record.maps ?? [];
  const row = (map, label) => map.labels.indexOf(label);

  function pooled(values, words) {
    const n = words[words.length - 1] + 1, sizes = new Array(n).fill(0);
    words.forEach((word) => sizes[word]++);
    const found = Array.from({length: n}, () => new Float32Array(n));
    values.forEach((line, i) => line.forEach((value, j) => { found[words[i]][words[j]] += value / sizes[words[i]]; }));
    return found;
  }

  /* A head's map as rows of values in [0, 1], with the text of its rows and columns; null where it has none. */
  function of(map, label) {
    const place = row(map, label);
    if (place < 0) return null;
    const key = `${map.title} ${map.values["@"]} ${label} ${level}`;
    if (!made.has(key)) {
      const tokens = Array.from(headspan.store.resolved(map.values)[place], (line) => Float32Array.from(line, (value) => value / 255));
      const byWord = level === "word" && map.words;
      const texts = byWord ? map.texts.reduce((found, text, i) => { found[map.words[i]] = (found[map.words[i]] ?? "") + text; return found; }, []) : map.texts;
      made.set(key, {texts, values: byWord ? pooled(tokens, map.words) : tokens});
    }
    return made.get(key);
  }

  function colors() {
    const style = getComputedStyle(headspan.root);
    const parsed = (name) => (style.getPropertyValue(name).trim().slice(1).match(/../g) ?? ["0", "0", "0"]).map((each) => Number.parseInt(each, 16));
    return [parsed("--map-low"), parsed("--map-high")];
  }

  /* Values as pixels, one each. */
  function pixels(values, [low, high]) {
    const n = values.length, image = new ImageData(values[0].length, n);
    values.forEach((line, i) => line.forEach((value, j) => {
      const t = Math.sqrt(Math.min(1, value)), at = 4 * (i * line.length + j);
      for (let k = 0; k < 3; k++) image.data[at + k] = low[k] + t * (high[k] - low[k]);
      image.data[at + 3] = 255;
    }));
    return image;
  }

  function painted(values) {
    const canvas = make("canvas", {});
    [canvas.width, canvas.height] = [values[0].length, values.length];
    canvas.getContext("2d").putImageData(pixels(values, colors()), 0, 0);
    return canvas;
  }

  /* One head's map, with its text below: a token under the pointer shows what it attends to. */
  function large(map, label) {
    const found = of(map, label);
    if (!found) return null;
    const {texts, values} = found, n = values.length;
    const canvas = painted(values), note = make("p", {class: "quiet map-note", role: "status"}, " ");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${map.title} of ${label}, ${n} by ${n}`);
    const shade = make("div", {class: "shade"});
    const tokens = texts.map((text, i) => make("span", {tabindex: "0", "data-token": i, class: map.words && i > 0 && map.words[i] === map.words[i - 1] ? "inner" : null, onpointerenter: () => look(i), onfocus: () => look(i)}, shown(text)));
    const look = (i, j = null) => {
      tokens.forEach((token, k) => {
        token.style.setProperty("--share", `${Math.round(100 * Math.sqrt(values[i][k] ?? 0))}%`);
        token.classList.toggle("asking", k === i);
      });
      const best = j ?? values[i].indexOf(Math.max(...values[i]));
      note.textContent = `“${shown(texts[i])}” attends ${j === null ? "most " : ""}to “${shown(texts[best])}”: ${values[i][best].toFixed(2)}`;
      Object.assign(shade.style, {top: `${(100 * i) / n}%`, height: `${100 / n}%`, left: `${(100 * best) / n}%`, width: `${100 / n}%`});
    };
    canvas.addEventListener("pointermove", (event) => {
      const box = canvas.getBoundingClientRect();
      const at = (value, size) => Math.max(0, Math.min(n - 1, Math.floor((value / size) * n)));
      look(at(event.clientY - box.top, box.height), at(event.clientX - box.left, box.width));
    });
    const toggle = map.words ? headspan.dom.button(level === "token" ? "By word" : "By token", () => {
      level = level === "token" ? "word" : "token";
      headspan.maps.changed();
    }, {class: "small", "data-level": level}) : null;
    const block = make("div", {class: "map", "data-map": label}, make("div", {class: "map-frame"},
      make("div", {class: "map-picture"}, canvas, shade), make("span", {class: "axis-name"}, "row: attends · column: attended to")),
      make("div", {class: "map-text"}, make("div", {class: "tokens"}, tokens), note, toggle));
    look(n - 1);
    return block;
  }

  /* A token as text that can be seen. */
  const shown = (text) => text.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g,
    (each) => (each === "\n" ? "\\n" : `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`)) || "∅";

  /* All heads, a line of small maps for every layer; a click chooses a head. */
  function grid(map) {
    const {layers, heads} = headspan.record.heads;
    const big = make("div", {class: "map-large"});
    const lines = layers.map((layer) => {
      const first = of(map, `L${layer}H0`);
      if (!first) return null;
      const size = Math.min(first.values.length, 48), gap = Math.max(2, Math.round(size / 8)), canvas = make("canvas", {role: "img",
        "aria-label": `${map.title}, heads of layer ${layer}`, "data-layer": layer});
      [canvas.width, canvas.height] = [heads * (size + gap) - gap, size];
      const under = (event) => {
        const box = canvas.getBoundingClientRect();
        return `L${layer}H${Math.min(heads - 1, Math.floor(((event.clientX - box.left) / box.width) * (canvas.width + gap) / (size + gap)))}`;
      };
      canvas.addEventListener("click", (event) => headspan.card.open(under(event)));
      canvas.addEventListener("pointermove", (event) => { canvas.title = under(event); });
      canvas.paint = () => {
        const shades = colors();
        for (let head = 0; head < heads; head++)
          canvas.getContext("2d").putImageData(pixels(of(map, `L${layer}H${head}`).values.slice(0, size).map((line) => line.slice(0, size)), shades), head * (size + gap), 0);
      };
      const ring = make("div", {class: "shade", hidden: true});
      canvas.mark = (head) => {
        ring.hidden = head === null;
        Object.assign(ring.style, {left: `${(100 * head * (size + gap)) / canvas.width}%`, width: `${(100 * size) / canvas.width}%`, top: 0, height: "100%"});
      };
      return make("div", {class: "map-line", "data-layer": layer}, make("span", {}, `L${layer}`), make("div", {class: "map-row",
        style: {"--cell": `${(100 * size) / (size + gap)}%`, "--period": `${(100 * (size + gap)) / canvas.width}%`}}, canvas, ring));
    }).filter(Boolean);
    const seen = new IntersectionObserver((entries) => {
      for (const {target, isIntersecting} of entries) if (isIntersecting && !target.dataset.painted) {
        target.dataset.painted = "yes";
        target.paint();
      }
    }, {rootMargin: "200px"});
    for (const line of lines) seen.observe(line.querySelector("canvas"));
    const show = (label) => {
      const {layer, head, kind} = headspan.labels.read(label);
      for (const line of lines) line.querySelector("canvas").mark(kind === "head" && Number(line.dataset.layer) === layer ? head : null);
      big.replaceChildren(...(of(map, label) ? [make("h4", {}, headLink(label)), large(map, label)] : []));
    };
    const repaint = () => lines.forEach((line) => { if (line.querySelector("canvas").dataset.painted) line.querySelector("canvas").paint(); });
    const paintAll = () => lines.forEach((line) => line.querySelector("canvas").paint());
    return {element: make("div", {class: "map-grid"}, make("div", {style: {"--maps": heads}},
      make("div", {class: "map-line numbers", "aria-hidden": "true"}, make("span", {}), make("div", {class: "map-row"},
        Array.from({length: heads}, (_, head) => make("b", {}, `H${head}`)))), lines), big), show, repaint, paintAll};
  }

  let grids = [];
  function start() {
    grids = [...headspan.root.querySelectorAll("[data-maps]")].flatMap((place) => all().filter((map) => map.lens === place.dataset.maps)
      .map((map) => {
        const made_ = grid(map);
        place.replaceChildren(made_.element);
        return made_;
      }));
  }
  const show = (label) => { for (const each of grids) if (label) each.show(label); };
  const changed = () => {
    const label = headspan.card.shown();
    headspan.card.refresh();
    show(label);
  };
  const recolor = () => { for (const each of grids) each.repaint(); changed(); };

  const print = () => { for (const each of grids) each.paintAll(); };

  return {all, large, start, show, changed, recolor, print, of};
})();

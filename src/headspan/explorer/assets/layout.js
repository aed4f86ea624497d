"use strict";
/* Where nodes stand and how arrows run. Heads across, layers upward; a kv head under the heads that share it; an MLP at the
   right of its layer; the embedding below all layers and the logits above. All lengths in pixels. */
headspan.layout = (() => {
  const LEFT = 34, TOP = 12, BOTTOM = 12, LETTER = 6.3, BOWS = [-0.09, 0.05, 0.13];
  const {layers, heads, kv_heads: kvHeads} = headspan.record.heads;
  const {grouped} = headspan.labels;

  /* How heads are labeled where nodes are so wide, the longest as well as the shortest: in full, the head's number with its
     letter, the number alone, or not at all. */
  const forms = [(label) => label, (label) => /[HK]\d+$/.exec(label)[0], (label) => /\d+$/.exec(label)[0], () => ""];
  const longest = `L${layers[layers.length - 1]}H${heads - 1}`;
  const fits = (text, width) => text.length * LETTER + 4 <= width;
  const form = (width) => forms.find((each) => fits(each(longest), width));

  /* Nodes by name with their boxes, for a view and a room; `height` is what the diagram needs. */
  function places(view, width, room) {
    const shown = layers.filter((layer) => view.layers[0] <= layer && layer <= view.layers[1]);
    const others = headspan.labels.others.filter((node) => view.kinds.includes(node.kind));
    const beside = others.some((node) => node.kind === "mlp") ? 1 : 0;
    const rows = [others.some((node) => node.kind === "logits") ? 1 : 0, others.some((node) => node.kind === "embedding") ? 1 : 0];
    const columns = heads + beside * 1.4, count = shown.length + rows[0] + rows[1];
    const least = grouped ? 38 : 24;
    const pitch = {x: (width - LEFT - 8) / columns, y: Math.max(least, Math.min(grouped ? 190 : 150, (room - TOP - BOTTOM) / count))};
    const height = TOP + BOTTOM + pitch.y * count;
    const size = {w: Math.min(46, pitch.x * 0.88), h: Math.min(22, pitch.y * (grouped ? 0.4 : 0.72))};
    const up = (row) => height - BOTTOM - pitch.y * (row + 0.5);
    const found = new Map(), labeled = form(size.w);
    const put = (id, x, y, w = size.w, h = size.h, kind = "head", text = id) =>
      found.set(id, {id, x, y, w, h, kind, text: kind === "head" || kind === "kv" ? labeled(id) : fits(text, w) ? text : ""});
    const across = (head) => LEFT + pitch.x * (head + 0.5);
    shown.forEach((layer, place) => {
      const y = up(place + rows[1]) - (grouped ? pitch.y * 0.2 : 0);
      for (let head = 0; head < heads; head++) put(`L${layer}H${head}`, across(head), y);
      for (let head = 0; grouped && head < kvHeads; head++)
        put(`L${layer}K${head}`, across(head * (heads / kvHeads) + (heads / kvHeads - 1) / 2), y + pitch.y * 0.46,
          Math.min(46, size.w * 1.1), size.h * 0.9, "kv");
    });
    for (const node of others) {
      const place = shown.indexOf(node.layer), wide = node.text ?? node.label ?? node.id;
      if (node.kind === "mlp" && place >= 0) put(node.id, across(heads + 0.4), up(place + rows[1]), size.w * 1.2, size.h, "mlp", wide);
      else if (node.kind === "logits" || node.kind === "embedding") {
        const same = others.filter((each) => each.kind === node.kind), at = same.indexOf(node);
        put(node.id, LEFT + ((at + 0.5) / same.length) * pitch.x * heads, up(node.kind === "logits" ? count - 1 : 0),
          Math.max(70, size.w), size.h, node.kind, wide);
      }
    }
    return {nodes: found, height, pitch, layers: shown.map((layer, place) => [layer, up(place + rows[1])])};
  }

  /* An arrow between two boxes: a bent line from the middle of one to the rim of the other, and its tip. */
  function arrow(from, to, place, width) {
    const [dx, dy] = [to.x - from.x, to.y - from.y], bow = BOWS[place % 3];
    const middle = [(from.x + to.x) / 2 - bow * dy, (from.y + to.y) / 2 + bow * dx];
    const at = (t) => [(1 - t) ** 2 * from.x + 2 * t * (1 - t) * middle[0] + t ** 2 * to.x,
      (1 - t) ** 2 * from.y + 2 * t * (1 - t) * middle[1] + t ** 2 * to.y];
    let low = 0.3, high = 1;
    for (let step = 0; step < 14; step++) {
      const t = (low + high) / 2, [x, y] = at(t);
      if (Math.abs(x - to.x) < to.w / 2 + 1.5 && Math.abs(y - to.y) < to.h / 2 + 1.5) high = t;
      else low = t;
    }
    const tip = at(high), back = at(Math.max(0, high - 0.04)), long = 4 + 1.7 * width;
    const angle = Math.atan2(tip[1] - back[1], tip[0] - back[0]);
    const wing = (turn) => [tip[0] - long * Math.cos(angle + turn), tip[1] - long * Math.sin(angle + turn)];
    const text = (point) => `${point[0].toFixed(1)} ${point[1].toFixed(1)}`;
    // Points along it are found when the pointer first asks.
    let along = null;
    // The bent line as far as the tip is a quadratic curve of its own.
    const control = [from.x + (middle[0] - from.x) * high, from.y + (middle[1] - from.y) * high];
    return {d: `M${text([from.x, from.y])}Q${text(control)} ${text(tip)}M${text(wing(0.42))}L${text(tip)}L${text(wing(-0.42))}`,
      points: () => (along ??= Array.from({length: 13}, (_, i) => at((high * i) / 12)))};
  }

  return {places, arrow};
})();

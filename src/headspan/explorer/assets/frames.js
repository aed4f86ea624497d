"use strict";
/* Drawing that is spread over frames: a few hundred elements are written at once, the rest in the frames that follow, so that
   none takes long. Work is a generator that yields after every element (or yields how many elements it was worth); what its
   owner begins anew replaces what was left of the old. A diagram of a few hundred elements is drawn at once. */
headspan.frames = (() => {
  const MOST = 700;
  const works = new Map();
  let asked = false, running = false;

  function spend(left) {
    running = true;
    try {
      for (const [owner, work] of works) {
        for (let step = work.next(); !step.done && left > 0; step = work.next()) left -= step.value ?? 1;
        if (left <= 0) return;
        if (works.get(owner) === work) works.delete(owner);
      }
    } finally {
      running = false;
    }
  }

  /* A portion now, the next one after the next frame is painted. */
  function portion() {
    spend(MOST);
    asked = works.size > 0;
    if (asked) requestAnimationFrame(() => setTimeout(portion));
  }

  function begin(owner, work) {
    works.delete(owner);
    works.set(owner, work);
    if (!asked && !running) portion();
  }

  return {MOST, begin, drop: (owner) => works.delete(owner), idle: () => works.size === 0,
    /* All that is left, now: before the diagram is saved or printed. */
    finish: () => spend(Infinity)};
})();

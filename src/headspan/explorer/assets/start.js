"use strict";
/* Everything is in place: show what the address asks for, and draw again where the room changes. */
headspan.maps.start();
headspan.state.follow(headspan.home.fragment());
headspan.figures.start();
(() => {
  let width = headspan.root.clientWidth, timer = null;
  new ResizeObserver(() => {
    if (headspan.root.clientWidth === width || !headspan.root.clientWidth) return;
    clearTimeout(timer);
    timer = setTimeout(() => {
      width = headspan.root.clientWidth;
      headspan.wiring.redraw();
    }, 120);
  }).observe(headspan.root);
})();

"use strict";
/* The keyboard: `/` searches, Escape closes the panel, arrows go from head to head while the panel or a figure is in
   focus, Enter on a figure chooses its first head. */
headspan.keys = (() => {
  const steps = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1]};
  const typing = (element) => element.matches("input, select, textarea");

  function arrows(event) {
    const {head} = headspan.state.get();
    const inPanel = headspan.panel.element.contains(event.target);
    const onFigure = event.target.matches(".plot");
    if (!head || !(inPanel || onFigure) || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    headspan.state.set({head: headspan.labels.neighbor(head, ...steps[event.key]), with: null}, {replace: true});
    if (inPanel) document.getElementById("panel-title").focus({preventScroll: true});
  }

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && headspan.state.get().head) headspan.panel.close();
    else if (event.key === "/" && !typing(event.target)) {
      event.preventDefault();
      headspan.toolbar.search.select();
      headspan.toolbar.search.focus();
    } else if (event.key in steps && !typing(event.target)) arrows(event);
    else if (event.key === "Enter" && event.target.matches(".plot")) {
      const first = headspan.linking.firstHead(event.target.closest("figure"));
      if (first) headspan.panel.open(headspan.state.get().head ?? first, {focus: true});
    }
  });
})();

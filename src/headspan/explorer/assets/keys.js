"use strict";
/* The keyboard: `/` searches, Escape goes back to the whole, arrows go from head to head while the card, the diagram or a
   figure is in focus, Enter chooses the first head of a figure and goes from the diagram to the card. */
headspan.keys = (() => {
  const steps = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1]};
  const typing = (element) => element.matches?.("input, select, textarea, summary");
  const title = () => headspan.card.element.querySelector(".card-title");

  function arrows(event) {
    const head = headspan.card.shown();
    const inCard = headspan.card.element.contains(event.target);
    const onDiagram = event.target.matches?.("svg.wires");
    if (!head || !(inCard || onDiagram || event.target.matches?.(".plot")) || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const next = headspan.state.get().head ? headspan.labels.neighbor(head, ...steps[event.key]) : head;
    headspan.state.set({head: next, with: null}, {replace: true});
    if (inCard) title().focus({preventScroll: true});
  }

  headspan.home.keys.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && headspan.root.querySelector("details.menu[open]"))
      for (const menu of headspan.root.querySelectorAll("details.menu[open]")) menu.open = false;
    else if (event.key === "Escape" && headspan.state.get().head) headspan.card.close();
    else if (event.key === "/" && !typing(event.target)) {
      event.preventDefault();
      headspan.controls.search.select();
      headspan.controls.search.focus();
    } else if (event.key in steps && !typing(event.target)) arrows(event);
    else if (event.key === "Enter" && event.target.matches?.("svg.wires")) {
      headspan.card.open(headspan.card.shown(), {focus: true});
    } else if (event.key === "Enter" && event.target.matches?.(".plot")) {
      const first = headspan.linking.firstHead(event.target.closest("figure"));
      if (first) headspan.card.open(headspan.state.get().head ?? first, {focus: true});
    }
  });
})();

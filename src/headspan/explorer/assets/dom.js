"use strict";
/* Elements made in one line. Text is always text: nothing here reads markup. */
headspan.dom = (() => {
  function filled(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
      if (value === null || value === undefined || value === false) continue;
      if (name === "onclick") element.addEventListener("click", value);
      else element.setAttribute(name, value === true ? "" : String(value));
    }
    element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
    return element;
  }

  const make = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);
  const svg = (tag, attributes = {}, ...children) =>
    filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

  /* A link that chooses a head. */
  const headLink = (label, text = label) => make("a", {href: `#head=${label}`, class: "head", "data-head": label}, text);

  return {make, svg, headLink};
})();

"use strict";
/* Elements made in one line. Text is always text: nothing here reads markup. */
headspan.dom = (() => {
  function filled(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      // Styles are set one by one: an attribute would be refused where the page forbids them.
      else if (name === "style") for (const [key, each] of Object.entries(value)) element.style.setProperty(key, each);
      else element.setAttribute(name, value === true ? "" : String(value));
    }
    element.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== ""));
    return element;
  }

  const make = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);
  const svg = (tag, attributes = {}, ...children) =>
    filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

  /* Write the attributes that differ from what was written before; whether there were any. A thousand attributes that stay
     cost more than the few that change. */
  const written = new WeakMap();
  function change(element, attributes) {
    if (!written.has(element)) written.set(element, {});
    const before = written.get(element);
    let wrote = false;
    for (const name in attributes) if (before[name] !== attributes[name]) {
      element.setAttribute(name, attributes[name]);
      before[name] = attributes[name];
      wrote = true;
    }
    return wrote;
  }

  /* A link that chooses a head. */
  const headLink = (label, text = label) => make("a", {href: `#head=${label}`, class: "head", "data-head": label}, text);

  const button = (text, onclick, attributes = {}) => make("button", {type: "button", onclick, ...attributes}, text);

  /* The place of a part of the component: the page offers it, a notebook has it made. */
  function place(name, tag = "div") {
    const found = headspan.root.querySelector(`[data-place="${name}"]`);
    return found ?? headspan.root.appendChild(make(tag, {"data-place": name, class: name}));
  }

  return {make, svg, change, headLink, button, place};
})();

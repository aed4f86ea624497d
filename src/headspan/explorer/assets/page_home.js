"use strict";
/* The page as the home of the component: archives and the drawing library are text of the page, packed; views live in the
   address. A model with several stacks has one component for each, made when it is first shown. */
(() => {
  const unpacked = new Map();
  async function bytes(id) {
    const element = document.getElementById(id);
    if (!element) return null;
    const raw = atob(element.textContent), packed = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) packed[i] = raw.charCodeAt(i);
    return new Uint8Array(await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer());
  }
  const once = (key, make) => unpacked.get(key) ?? unpacked.set(key, make()).get(key);

  /* Kinds of traces that the figures of the page have. */
  const kinds = () => [...document.querySelectorAll("script.spec")].flatMap((each) => Object.values(JSON.parse(each.textContent)))
    .flatMap((figure) => figure.data.map((trace) => trace.type ?? "scatter"));
  const plotly = () => once("plotly", async () => headspanLibrary(new TextDecoder().decode(await bytes("plotly")), kinds()));

  function home(root) {
    const prefix = root.dataset.stack ?? "";
    const given = (name) => document.getElementById(prefix ? `${prefix}-${name}` : name);
    return {
      plotly, keys: document,
      record: () => JSON.parse(given("payload").textContent),
      archive: async (name) => {
        const found = given(`archive-${name}`);
        return found && {index: JSON.parse(given(`index-${name}`).textContent), bytes: await once(found.id, () => bytes(found.id))};
      },
      fragment: () => parts().rest,
      go: (fragment, replace) => {
        const address = `#${[prefix && `stack=${encodeURIComponent(prefix)}`, fragment].filter(Boolean).join("&") || "top"}`;
        history[replace ? "replaceState" : "pushState"](null, "", address);
      },
      scrolled: () => scrollY,
    };
  }

  const roots = [...document.querySelectorAll("[data-explorer]")];
  const made = new Map();

  /* The stack that the address names, and what else it says. */
  function parts() {
    const found = /^stack=([^&]*)&?(.*)$/.exec(location.hash.slice(1));
    return {stack: found ? decodeURIComponent(found[1]) : "", rest: found ? found[2] : location.hash.slice(1).replace(/^top$/, "")};
  }

  async function show() {
    const {stack, rest} = parts();
    const root = roots.find((each) => each.dataset.stack === stack) ?? roots[0];
    for (const each of roots) each.hidden = each !== root;
    for (const link of document.querySelectorAll(".stacks a"))
      link.toggleAttribute("aria-current", link.dataset.stack === root.dataset.stack);
    const known = made.has(root);
    if (!known) made.set(root, headspanComponent(root, home(root)));
    const component = await made.get(root);
    globalThis.headspan = component;
    if (known) component.state?.follow(rest);
  }
  window.addEventListener("popstate", show);
  window.addEventListener("beforeprint", () => {
    globalThis.headspan?.frames?.finish();
    globalThis.headspan?.figures.print();
    globalThis.headspan?.maps?.print();
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.(".stacks a");
    if (!link) return;
    event.preventDefault();
    history.pushState(null, "", `#stack=${encodeURIComponent(link.dataset.stack)}`);
    show();
  });
  globalThis.headspanReady = show();
})();

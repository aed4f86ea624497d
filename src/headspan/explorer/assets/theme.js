"use strict";
/* Light or dark: as the reader's system has it, until the button says otherwise. Kept for the next visit where the
   browser allows it. */
(() => {
  const button = document.getElementById("theme");
  if (!button) return;
  const root = document.documentElement;
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);

  function kept(change) {
    try {
      return change();
    } catch {
      return null;
    }
  }

  function show() {
    button.textContent = dark() ? "Light" : "Dark";
    button.setAttribute("aria-label", dark() ? "Light page" : "Dark page");
    globalThis.headspan?.maps?.recolor();
  }

  const before = kept(() => localStorage.getItem("headspan-theme"));
  if (before) root.dataset.theme = before;
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    kept(() => localStorage.setItem("headspan-theme", root.dataset.theme));
    show();
  });
  system.addEventListener("change", show);
  show();
})();

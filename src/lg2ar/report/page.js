"use strict";

// Hover texts, the switch between light and dark, and the tabs of the examples.
(() => {
  const root = document.documentElement;

  const tip = document.getElementById("tip");
  const showTip = (event) => {
    const told = event.target.closest("[data-tip]");
    tip.hidden = !told;
    if (!told) return;
    tip.textContent = told.dataset.tip;
    const left = Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 8);
    const top = Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 4);
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${Math.max(4, top)}px`;
  };
  for (const kind of ["pointerover", "pointermove"]) document.addEventListener(kind, showTip);
  document.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const retell = () => {
    button.textContent = isDark() ? "☀ Light" : "☾ Dark";
    button.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
    document.dispatchEvent(new Event("theme-changed"));
  };
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    retell();
  });
  system.addEventListener("change", retell);
  button.hidden = false;
  retell();

  for (const strip of document.querySelectorAll(".tabs")) {
    const tabs = [...strip.children];
    const panels = tabs.map((tab) => document.getElementById(tab.getAttribute("aria-controls")));
    const choose = (place) => tabs.forEach((tab, k) => {
      tab.setAttribute("aria-selected", String(k === place));
      tab.tabIndex = k === place ? 0 : -1;
      panels[k].hidden = k !== place;
    });
    tabs.forEach((tab, k) => {
      tab.addEventListener("click", () => choose(k));
      tab.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        const next = (k + step + tabs.length) % tabs.length;
        choose(next);
        tabs[next].focus();
      });
    });
    strip.hidden = tabs.length < 2;
    choose(0);
  }
})();

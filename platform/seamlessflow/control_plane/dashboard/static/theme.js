// Dark or light before anything is drawn, so that nothing flashes: the visitor's choice, else the system's.
// `src/ui/theme.ts` changes it later; the key must be the same in both.
(() => {
  const chosen = localStorage.getItem("seamlessflow-theme");
  const isDark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
})();

// Applies the user's theme, or else the system's, before anything is drawn, so that the page does not flash.
// `src/ui/theme/theme.ts` changes it later. Both must use the same key.
(() => {
  const chosen = localStorage.getItem("seamlessflow-theme");
  const isDark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
})();

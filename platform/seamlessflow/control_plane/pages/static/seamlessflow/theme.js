// Dark or light: the visitor's choice, else the system's. Runs before the page is drawn, so it does not flash.
(() => {
  const root = document.documentElement;
  const chosen = localStorage.getItem("theme");
  const dark = () => root.dataset.theme === "dark";
  root.dataset.theme = chosen ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme").addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      localStorage.setItem("theme", root.dataset.theme);
    });
  });
})();

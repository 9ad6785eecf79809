// Dark or light: chosen by the visitor, else the system's. `public/theme.js` applies it before the first paint.
import { useSyncExternalStore } from "react";

export type Theme = "dark" | "light";
const KEY = "seamlessflow-theme"; // the admin site keeps one of its own under "theme"
const listeners = new Set<() => void>();

export function theme(): Theme {
  return document.documentElement.dataset.theme === "dark" ? "dark" : "light";
}

export function themeSet(chosen: Theme): void {
  document.documentElement.dataset.theme = chosen;
  localStorage.setItem(KEY, chosen);
  for (const listener of listeners) listener();
}

/** Canvases reread their colours when this changes. */
export function useTheme(): Theme {
  return useSyncExternalStore((listener) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, theme);
}

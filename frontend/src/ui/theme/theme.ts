// The theme: the user's choice, or else the system's. `public/theme.js` applies it before the first paint.
import { useSyncExternalStore } from "react";

export type Theme = "dark" | "light";
const KEY = "seamlessflow-theme"; // the admin site stores its own theme under "theme"
const listeners = new Set<() => void>();

export function theme(): Theme {
  return document.documentElement.dataset.theme === "dark" ? "dark" : "light";
}

export function themeSet(chosen: Theme): void {
  document.documentElement.dataset.theme = chosen;
  localStorage.setItem(KEY, chosen);
  for (const listener of listeners) listener();
}

/** The current theme. Canvases read their colours again when it changes. */
export function useTheme(): Theme {
  return useSyncExternalStore((listener) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, theme);
}

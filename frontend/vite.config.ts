// Enters: src/ and index.html. Leaves: dist/, every asset named by its digest, addressed under STATIC_URL.
// The control plane serves index.html itself (never cached) and the assets from its static files (cached for good).
import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

const PLATFORM = process.env.SEAMLESSFLOW_WEB_URL ?? "http://127.0.0.1:8000";

export default defineConfig(({ command }) => ({
  base: command === "build" ? "/static/dashboard/" : "/",
  plugins: [react()],
  build: {
    outDir: "dist",
    assetsDir: "assets",
    // No data: addresses for small files: the content policy allows files of this host only.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: "es2023",
    reportCompressedSize: false,
  },
  server: {
    // `npm run dev` beside a platform that runs: the page from here, everything else from there.
    proxy: Object.fromEntries(
      ["/api", "/ws", "/signin", "/signout", "/admin"].map((path) => [path, { target: PLATFORM, ws: path === "/ws" }]),
    ),
  },
}));

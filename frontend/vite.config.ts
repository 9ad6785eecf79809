// Enters: src/ and index.html. Leaves: dist/, where assets are named by their digests and addressed under STATIC_URL.
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
    // Small files are not inlined as data: URLs, because the content policy allows only files of this host.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: "es2023",
    reportCompressedSize: false,
  },
  server: {
    // `npm run dev` serves the page itself and forwards everything else to a running platform.
    proxy: Object.fromEntries(
      ["/api", "/ws", "/signin", "/signout", "/admin"].map((path) => [path, { target: PLATFORM, ws: path === "/ws" }]),
    ),
  },
}));

// Pure modules only: no browser, no network. What needs a browser is in tests/acceptance.
import { defineConfig } from "vitest/config";

export default defineConfig({ test: { include: ["src/**/*.test.ts"], environment: "node" } });

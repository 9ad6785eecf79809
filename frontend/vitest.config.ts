// Tests of pure modules, without a browser or a network. Browser tests are in tests/acceptance.
import { defineConfig } from "vitest/config";

export default defineConfig({ test: { include: ["src/**/*.test.ts"], environment: "node" } });

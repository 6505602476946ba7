import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

// The server sets <base href>, so that the console works under any path that the application is mounted at.
// `npm run dev` shows the sources, with the API of a `wakeful serve` on port 8000.
export default defineConfig(({ command }) => ({
  base: command === "build" ? "./" : "/console/",
  plugins: [svelte()],
  build: {
    outDir: "../src/wakeful/server/console/assets",
    emptyOutDir: true,
    target: "es2023",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  server: { proxy: { "/v1": "http://localhost:8000" } },
}));

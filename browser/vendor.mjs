// Copies the chart library from its npm package to where the dashboard serves it,
// with its licence. --check compares the copy with the package instead.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const from = fileURLToPath(new URL("node_modules/uplot/", import.meta.url));
const to = fileURLToPath(new URL("../internal/dashboard/static/vendor/", import.meta.url));
const read = (path) => readFileSync(path, "utf8");
const { version, homepage } = JSON.parse(read(`${from}package.json`));

const files = {
  "uPlot.iife.min.js": read(`${from}dist/uPlot.iife.min.js`),
  "uPlot.min.css": read(`${from}dist/uPlot.min.css`),
  "uPlot.LICENSE.txt": `uPlot ${version}, ${homepage}\nCopied from the npm package by browser/vendor.mjs.\n\n${read(`${from}LICENSE`)}`,
};

mkdirSync(to, { recursive: true });
for (const [name, content] of Object.entries(files)) {
  if (process.argv.includes("--check")) assert.equal(read(to + name), content, `${name} differs from uPlot ${version}: run npm run vendor`);
  else writeFileSync(to + name, content);
}

// Runs the README's example against the real service, and installs the package from
// its tarball into an empty project.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL("..", import.meta.url));
const root = fileURLToPath(new URL("../../..", import.meta.url));

test("the package installs, its types resolve, and the README's example runs", { timeout: 300_000 }, async (t) => {
  const project = mkdtempSync(join(tmpdir(), "holdfast-client-"));
  t.after(() => rmSync(project, { recursive: true }));
  const run = (command, args, options) => execFileSync(command, args, { cwd: project, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"], ...options });
  const [packed] = JSON.parse(run("npm", ["pack", "--ignore-scripts", "--json", "--pack-destination", project], { cwd: here }));
  const code = packed.files.filter((f) => !f.path.endsWith(".d.ts"));
  assert.ok(code.reduce((sum, f) => sum + f.size, 0) < 40_000, "40 kB without types");
  writeFileSync(join(project, "package.json"), '{"type":"module"}');
  run("npm", ["install", "--no-audit", "--no-fund", "--loglevel=error", join(project, packed.filename)]);
  assert.deepEqual(Object.keys(JSON.parse(readFileSync(join(project, "node_modules/@holdfast/client/package.json"))).dependencies), ["openapi-fetch"]);

  const example = readFileSync(join(here, "README.md"), "utf8").match(/```js\n(.*?)```/s)[1];
  writeFileSync(join(project, "example.ts"), example.replaceAll("process.env.HOLDFAST_URL", '"http://localhost"').replaceAll("process.env.HOLDFAST_KEY", '"hf_key"'));
  for (const [module, moduleResolution] of [["node16", "node16"], ["esnext", "bundler"]]) {
    mkdirSync(join(project, module), { recursive: true });
    writeFileSync(join(project, "tsconfig.json"), JSON.stringify({ compilerOptions: { module, moduleResolution, strict: true, noEmit: true, target: "es2022", skipLibCheck: false, types: [] }, files: ["example.ts"] }));
    run(join(here, "node_modules/.bin/tsc"), ["-p", "tsconfig.json"]);
  }

  const service = spawn(`${root}bin/holdfast`, ["run", "--port", "0", "--fresh"], { cwd: root, stdio: ["ignore", "pipe", "inherit"], env: { ...process.env, LOG_LEVEL: "warn" } });
  t.after(() => service.kill("SIGTERM"));
  const { url, key } = await new Promise((resolve) => {
    createInterface({ input: service.stdout }).on("line", (line) => {
      const fields = Object.fromEntries(line.split(" ").map((part) => part.split(/=(.*)/)));
      if (fields.database) resolve(fields);
    });
  });
  writeFileSync(join(project, "example.mjs"), example);
  run(process.execPath, ["example.mjs"], { env: { ...process.env, HOLDFAST_URL: url, HOLDFAST_KEY: key } });
  const stock = await fetch(`${url.replace(/\/$/, "")}/v1/stocks/shirt-m`, { headers: { Authorization: `Bearer ${key}` } }).then((r) => r.json());
  assert.equal(stock.stock, 9);
  assert.ok(statSync(join(project, packed.filename)).size < 100_000);
});

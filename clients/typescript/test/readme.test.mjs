// Runs the README's example and the shop of examples/shop against the real service, and installs the package from
// its tarball into an empty project.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL("..", import.meta.url));
const root = fileURLToPath(new URL("../../..", import.meta.url));

test("the package installs, its types resolve, and the examples run", { timeout: 300_000 }, async (t) => {
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

  // The shop of examples/shop, with the package from its tarball.
  const shop = join(root, "examples/shop");
  copyFileSync(join(shop, "shop.ts"), join(project, "shop.ts"));
  const { compilerOptions } = JSON.parse(readFileSync(join(shop, "tsconfig.json")));
  Object.assign(compilerOptions, { outDir: ".", typeRoots: [join(here, "node_modules/@types")] });
  writeFileSync(join(project, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["shop.ts"] }));
  run(join(here, "node_modules/.bin/tsc"), ["-p", "tsconfig.json"]);
  const server = spawn(process.execPath, ["shop.js"], { cwd: project, stdio: ["ignore", "pipe", "inherit"], env: { ...process.env, HOLDFAST_URL: url, HOLDFAST_KEY: key, PORT: "0" } });
  t.after(() => server.kill("SIGTERM"));
  const [address] = await once(createInterface({ input: server.stdout }), "line");
  const post = async (path, body) => {
    const response = await fetch(new URL(path, address), { method: "POST", body: body && JSON.stringify(body) });
    return [response.status, await response.json()];
  };
  const [status, { held }] = await post("/carts/anns", { variant: "shirt-l", quantity: 2 });
  assert.deepEqual([status, held], [200, 2]);
  assert.deepEqual(await post("/carts/bens", { variant: "shirt-l", quantity: 6 }), [409, { refused: "limit_exceeded" }]);
  assert.deepEqual(await post("/carts/bens", { variant: "shirt-l", quantity: -1 }), [422, { refused: "invalid" }]);
  assert.deepEqual(await post("/carts/anns/order"), [200, { total: 5000 }]);
  assert.deepEqual(await post("/carts/anns/order"), [200, { total: 5000 }], "a second click buys nothing more");
  assert.deepEqual(await post("/carts/bens/order"), [409, { refused: "cart_empty" }]);
  const products = await fetch(address).then((r) => r.json());
  assert.deepEqual(products.find((p) => p.variant === "shirt-l"), { variant: "shirt-l", price: 2500, left: 8 });
  assert.ok(statSync(join(project, packed.filename)).size < 100_000);
});

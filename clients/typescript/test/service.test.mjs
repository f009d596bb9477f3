// The cases of the client against the real service, which bin/holdfast starts with a
// private Postgres.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:net";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Holdfast, HoldfastError } from "../dist/index.js";

const root = fileURLToPath(new URL("../../..", import.meta.url));
const binary = process.env.HOLDFAST_BIN ?? `${root}bin/holdfast`;
const start = (args, env = {}) => {
  const child = spawn(binary, ["run", ...args], { cwd: root, env: { ...process.env, LOG_LEVEL: "warn", ...env }, stdio: ["ignore", "pipe", "inherit"] });
  const ready = new Promise((resolve, reject) => {
    createInterface({ input: child.stdout }).on("line", (line) => {
      const fields = Object.fromEntries(line.split(" ").map((part) => part.split(/=(.*)/)));
      if (fields.database) resolve(fields);
    });
    child.once("exit", (code) => reject(new Error(`holdfast run ended with ${code}`)));
  });
  return { child, ready };
};

let program, service, client;
before(async () => {
  program = start(["--port", "0", "--fresh"], { METERED_COMMANDS_ENABLED: "true" });
  service = await program.ready;
  client = new Holdfast({ url: service.url, key: service.key });
});
after(() => program.child.kill("SIGTERM"));

const reserve = (cart, variant, quantity = 1, more = {}) => client.reserve({ cart, variant, quantity, ...more }).result({ timeout: 20_000 });

// The calls of clients/service.json.
const ids = (stocks) => ({ ids: stocks.map((stock) => stock.variant_id) });
const calls = {
  put: (s) => client.stocks.put(s.variant, s.settings),
  stock: (s) => client.stocks.get(s.variant),
  adjust: (s) => client.stocks.adjust(s.variant, s.delta),
  delete: (s) => client.stocks.delete(s.variant),
  some: async (s) => ids((await client.stocks.some(s.variants)).items),
  list: async (s) => {
    const all = [];
    for await (const stock of client.stocks.list({ group: s.group, limit: s.limit })) all.push(stock);
    return ids(all);
  },
  add: (s) => client.carts.add(s.cart, { variant_id: s.variant, quantity: s.quantity }, { idempotencyKey: s.key, wait: 20 }),
  reserve: (s) => reserve(s.cart, s.variant, s.quantity, { customer: s.customer, admissionToken: s.token }),
  set: (s) => client.carts.set(s.cart, s.variant, s.quantity, { wait: 20 }),
  cart: (s) => client.carts.get(s.cart),
  extend: (s) => client.carts.extend(s.cart, s.seconds),
  checkout: (s) => client.carts.checkout(s.cart),
  remove: (s) => client.carts.remove(s.cart, s.variant),
  reservation: (s) => client.reservations.get(s.id),
  commit: (s) => client.reservations.commit(s.id, s.quantity ? { quantity: s.quantity } : undefined),
  "extend hold": (s) => client.reservations.extend(s.id, s.seconds),
  release: (s) => client.reservations.release(s.id),
  history: (s) => client.reservations.history(s.id),
  mint: (s) => client.admissions.mint({ subject: s.subject, variant_id: s.variant }),
};

// The wanted value, with the other fields that the object has.
const completed = (want, got) =>
  Array.isArray(want)
    ? want.map((item, i) => completed(item, got?.[i]))
    : want && typeof want === "object"
      ? { ...got, ...Object.fromEntries(Object.entries(want).map(([name, value]) => [name, completed(value, got?.[name])])) }
      : want;

for (const { name, steps } of JSON.parse(readFileSync(new URL("../../service.json", import.meta.url)))) {
  test(name, async () => {
    const saved = {};
    for (const step of steps) {
      const { call, want, fails, save = {}, ...fields } = JSON.parse(JSON.stringify(step).replace(/\$(\w+)/g, (_, name) => saved[name]));
      const made = calls[call](fields);
      if (fails) {
        await assert.rejects(made, (error) => error instanceof HoldfastError && error.code === fails.code && error.status === fails.status && error.correlationId !== undefined);
        continue;
      }
      const got = await made;
      assert.deepEqual(got, completed(want, got), JSON.stringify(step));
      for (const [name, path] of Object.entries(save)) {
        saved[name] = path.split(".").reduce((of, field) => of[field], got);
      }
    }
  });
}

test("a repetition is marked, and unknown stocks are listed", async () => {
  await client.stocks.put("glove", { stock: 9 });
  const once = () => client.carts.add("marked", { variant_id: "glove", quantity: 1 }, { idempotencyKey: "order-2", wait: 10 }).withResponse();
  const [first, second] = [await once(), await once()];
  assert.deepEqual([first, second].map(({ response }) => response.headers.get("Idempotency-Replayed")), [null, "true"]);
  assert.deepEqual((await client.stocks.some(["glove", "none"])).unknown, ["none"]);
});

// HOLDFAST_KILLS is how often the API is killed; make clients sets 200.
test("the API is killed while callers reserve", { timeout: 1_800_000 }, async () => {
  const kills = Number(process.env.HOLDFAST_KILLS ?? 5), callers = 64;
  const port = await new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
  const url = `http://127.0.0.1:${port}`;
  const env = { ...process.env, DATABASE_URL: service.database, PORT: `${port}`, LOG_LEVEL: "error", METERED_COMMANDS_ENABLED: "true" };
  const startAPI = async () => {
    const api = spawn(`${root}bin/api`, { env, stdio: "inherit" });
    while (!(await fetch(`${url}/readyz`).then((r) => r.ok, () => false))) {
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    return api;
  };
  await client.stocks.put("crowd", { stock: 1_000_000 });
  let api = await startAPI(), over = false, calls = 0, held = 0;
  const shop = new Holdfast({ url, key: service.key, maxRetries: 12 });
  const calling = Promise.all(Array.from({ length: callers }, async (_, caller) => {
    for (let n = 0; !over; n++) {
      const outcome = await shop.reserve({ cart: `crowd-${caller}-${n}`, variant: "crowd", quantity: 1 }).result({ timeout: 60_000 });
      assert.equal(outcome.status, "held");
      [calls, held] = [calls + 1, held + 1];
    }
  }));
  for (let n = 0; n < kills; n++) {
    await new Promise((resolve) => setTimeout(resolve, 100 + Math.random() * 400));
    api.kill("SIGKILL");
    await once(api, "exit");
    api = await startAPI();
  }
  over = true;
  await calling;
  api.kill("SIGTERM");
  assert.ok(calls > kills);
  const carts = await client.stocks.get("crowd");
  assert.equal(carts.reserved, held, "one effect for each key");
  execFileSync(binary, ["verify"], { env, stdio: "pipe" });
  console.log(`${kills} kills, ${calls} calls, each with an outcome`);
});

// The cases of the client against the real service, which bin/holdfast starts with a
// private Postgres.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
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

test("held, sold out, limit, unknown, digital", async () => {
  await client.stocks.put("shirt", { stock: 3, max_per_cart: 2 });
  await client.stocks.put("e/book", { tracked: false });
  const held = await reserve("a", "shirt", 2);
  assert.equal(held.status, "held");
  assert.equal(held.reservation.quantity, 2);
  const reason = async (...args) => (await reserve(...args)).reason;
  assert.equal(await reason("b", "shirt", 2), "out_of_stock");
  assert.equal(await reason("a", "shirt", 1), "limit_exceeded");
  assert.equal(await reason("b", "nothing"), "unknown_variant");
  assert.deepEqual([(await reserve("b", "e/book")).status, (await reserve("b", "e/book")).reservation], ["held", null]);
});

test("a key has one effect, and its repetition is marked", async () => {
  await client.stocks.put("sock", { stock: 9 });
  const once = () => client.carts.add("keyed", { variant_id: "sock", quantity: 1 }, { idempotencyKey: "order-1", wait: 10 }).withResponse();
  const [first, second] = [await once(), await once()];
  assert.equal(first.data.request_id, second.data.request_id);
  assert.equal(second.response.headers.get("Idempotency-Replayed"), "true");
  assert.equal((await client.stocks.get("sock")).reserved, 1);
  await assert.rejects(client.carts.add("keyed", { variant_id: "sock", quantity: 2 }, { idempotencyKey: "order-1" }), { code: "idempotency_key_reused", status: 422 });
});

test("a cart is changed, extended, checked out, and refused when empty", async () => {
  await client.stocks.put("hat", { stock: 5 });
  await reserve("c", "hat", 3);
  await client.carts.set("c", "hat", 2, { wait: 10 });
  assert.equal((await client.carts.get("c")).reservations.filter((r) => r.status === "held")[0].quantity, 2);
  assert.equal((await client.carts.extend("c", 60)).extended.length, 1);
  assert.equal((await client.carts.checkout("c")).committed.length, 1);
  await assert.rejects(client.carts.checkout("c"), (error) => error instanceof HoldfastError && error.code === "cart_empty" && error.status === 409 && error.correlationId !== undefined);
  assert.equal((await client.stocks.get("hat")).stock, 3);
  await reserve("d", "hat", 1);
  assert.equal((await client.carts.remove("d", "hat")).released, 1);
});

test("a reservation is read, committed in part, released, and has a history", async () => {
  await client.stocks.put("tent", { stock: 5 });
  const { reservation } = await reserve("e", "tent", 3);
  assert.equal((await client.reservations.get(reservation.reservation_id)).status, "held");
  assert.equal((await client.reservations.commit(reservation.reservation_id, { quantity: 1 })).rest.quantity, 2);
  assert.equal((await client.reservations.extend(reservation.reservation_id, 30)).status, "held");
  assert.equal((await client.reservations.release(reservation.reservation_id)).status, "released");
  await assert.rejects(client.reservations.commit(reservation.reservation_id), { code: "conflicting_state", actual: "released" });
  assert.ok((await client.reservations.history(reservation.reservation_id)).items.length >= 4);
});

test("a token is required, and minted", async () => {
  await client.stocks.put("sneaker", { stock: 5, admission: "token" });
  await assert.rejects(client.carts.add("f", { variant_id: "sneaker", quantity: 1 }), { code: "admission_required", status: 403 });
  const { token } = await client.admissions.mint({ subject: "ann", variant_id: "sneaker" });
  assert.equal((await reserve("f", "sneaker", 1, { customer: "ann", admissionToken: token })).status, "held");
});

test("pages, and odd ids", async () => {
  const odd = ["rolls/buns", "a?b#c", "ü ä", "..a", "100%", "{x}", "'\"<"];
  for (const id of odd) {
    await client.stocks.put(id, { stock: 1 });
    assert.equal((await client.stocks.get(id)).variant_id, id);
    assert.equal((await reserve(id, id)).status, "held");
  }
  const seen = [];
  for await (const stock of client.stocks.list({ limit: 2 })) {
    seen.push(stock.variant_id);
  }
  assert.equal(new Set(seen).size, seen.length);
  assert.ok(odd.every((id) => seen.includes(id)));
  const page = await client.stocks.some([...odd, "none"]);
  assert.deepEqual(page.items.map((s) => s.variant_id), odd);
  assert.deepEqual(page.unknown, ["none"]);
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

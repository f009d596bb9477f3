// Attempts, waits, keys and errors, against scripted answers and a clock of its own.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Holdfast, HoldfastError } from "../dist/index.js";

const stock = { variant_id: "shirt", stock: 1 };
const answer = (status, body, headers = {}) => () => new Response(JSON.stringify(body), { status, headers: { "Content-Type": "application/json", ...headers } });
const refused = (status, retryAfter) => answer(status, { code: "overloaded", detail: "too much", status, title: "" }, retryAfter ? { "Retry-After": `${retryAfter}` } : {});
const hangsUp = () => { throw new TypeError("fetch failed"); };

/** A client whose attempts get the answers in turn. */
function scripted(answers, options = {}) {
  const sent = [], waits = [], attempts = [];
  const client = new Holdfast({
    url: "http://holdfast.test/", key: "hf_secret",
    fetch: async (request) => {
      sent.push({ method: request.method, url: request.url, key: request.headers.get("Idempotency-Key"), prefer: request.headers.get("Prefer"), body: await request.text(), authorization: request.headers.get("Authorization") });
      return (answers.length > 1 ? answers.shift() : answers[0])();
    },
    clock: { sleep: async (ms, signal) => { signal.throwIfAborted(); waits.push(ms); }, random: () => 0.5 },
    onAttempt: (attempt) => attempts.push(attempt),
    ...options,
  });
  return { client, sent, waits, attempts };
}

test("one key for all attempts, and waits as the answers say", async () => {
  const { client, sent, waits, attempts } = scripted([hangsUp, refused(503, 2), refused(429, 600), answer(202, { request_id: "r", status: "queued" })]);
  assert.equal((await client.carts.add("cart 1", { variant_id: "rolls/buns", quantity: 1 })).request_id, "r");
  assert.equal(sent.length, 4);
  assert.equal(new Set(sent.map((s) => s.key)).size, 1);
  assert.match(sent[0].key, /^[0-9a-f-]{36}$/);
  assert.deepEqual(new Set(sent.map((s) => s.url)), new Set(["http://holdfast.test/v1/carts/cart%201/items"]));
  assert.deepEqual(new Set(sent.map((s) => s.body)), new Set(['{"variant_id":"rolls/buns","quantity":1}']));
  assert.deepEqual(waits, [112.5, 2250, 22500]);
  assert.deepEqual(attempts.map((a) => a.status), [undefined, 503, 429, 202]);
  assert.ok(!JSON.stringify(attempts).includes("hf_secret"));
  assert.equal(sent[0].authorization, "Bearer hf_secret");
});

// The cases that the Go client passes too.
for (const { name, key, retries, answers, waits: least, ends } of JSON.parse(readFileSync(new URL("../../cases.json", import.meta.url)))) {
  test(name, async () => {
    const steps = answers.map(({ status, retry_after }) => (status === 0 ? hangsUp : status < 400 ? answer(status, {}) : refused(status, retry_after)));
    const { client, sent, waits } = scripted(steps, retries ? { maxRetries: retries } : {});
    const call = client.carts.checkout("cart-1", { idempotencyKey: key });
    if (ends === 0) {
      await assert.rejects(call, (error) => error.code === "connection" && error.status === 0 && error.cause instanceof TypeError);
    } else if (ends >= 400) {
      await assert.rejects(call, (error) => error instanceof HoldfastError && error.status === ends && error.code === "overloaded");
    } else {
      await call;
    }
    assert.deepEqual(waits, least.map((ms) => ms * 1.125));
    assert.equal(sent.length, waits.length + 1);
    assert.deepEqual(new Set(sent.map((s) => s.key)), new Set([key ?? sent[0].key]));
    assert.ok(sent[0].key);
  });
}

test("an error has what the answer says", async () => {
  const { client } = scripted([answer(422, { code: "invalid", detail: "no", status: 422, errors: [{ field: "f", message: "m" }] }, { "X-Correlation-Id": "c-1" })]);
  await assert.rejects(client.carts.checkout("c"), (error) => error.code === "invalid" && error.correlationId === "c-1" && error.errors[0].field === "f");
  const { client: other } = scripted([() => new Response("<html>", { status: 404 })]);
  await assert.rejects(other.stocks.get("shirt"), (error) => error.code === "not_holdfast");
});

test("a crowd that was refused comes back spread", async () => {
  const waits = [];
  await Promise.all(Array.from({ length: 1000 }, async () => {
    const answers = [refused(503, 4), answer(200, stock)];
    const { client } = scripted(answers, { clock: { sleep: async (ms) => waits.push(ms), random: Math.random } });
    await client.stocks.get("shirt");
  }));
  assert.equal(waits.length, 1000);
  assert.ok(Math.min(...waits) >= 4000 && Math.max(...waits) <= 5000);
  assert.ok(Math.max(...waits) - Math.min(...waits) > 800, "over at least a fifth of the wait");
});

test("ids are one segment of the path", async () => {
  const { client, sent } = scripted([answer(200, stock)]);
  for (const [id, path] of Object.entries({ "rolls/buns": "rolls%2Fbuns", "a?b#c": "a%3Fb%23c", "ü ä": "%C3%BC%20%C3%A4", "..a": "..a", "100%": "100%25" })) {
    await client.stocks.get(id);
    assert.equal(sent.at(-1).url, `http://holdfast.test/v1/stocks/${path}`);
  }
  const before = sent.length;
  for (const id of [".", "..", ""]) {
    assert.throws(() => client.stocks.get(id), (error) => error.code === "invalid" && error.errors[0].field === "variant_id");
  }
  assert.equal(sent.length, before);
  await client.stocks.some(["a b", "c&d"]);
  assert.equal(sent.at(-1).url, "http://holdfast.test/v1/stocks?variant_id=a%20b&variant_id=c%26d");
});

test("a signal ends a call between two attempts", async () => {
  const controller = new AbortController();
  const { client, sent } = scripted([refused(503, 1)], { onAttempt: () => controller.abort(new Error("enough")) });
  await assert.rejects(client.stocks.get("shirt", { signal: controller.signal }), /enough/);
  assert.equal(sent.length, 1);
});

test("an outcome is waited for by long polls, under one key", async () => {
  const request = (status, more) => answer(200, { request_id: "r", cart_id: "c", status, reason: null, ...more });
  const { client, sent } = scripted([answer(202, { request_id: "r", status: "queued" }), request("queued"), request("done", { reservation: { reservation_id: "r" } })]);
  const held = await client.reserve({ cart: "c", variant: "shirt", quantity: 1 }).result({ timeout: 20_500 });
  assert.equal(held.status, "held");
  assert.equal(held.reservation.reservation_id, "r");
  assert.match(sent[0].prefer, /^wait=(19|20)$/);
  assert.match(sent[1].url, /\/v1\/requests\/r\?wait=(19|20)$/);
  const { client: soldOut } = scripted([request("failed", { reason: "out_of_stock" })]);
  const outcome = await soldOut.reserve({ cart: "c", variant: "shirt", quantity: 1 }).result();
  assert.deepEqual([outcome.status, outcome.reason], ["rejected", "out_of_stock"]);
  const { client: slow } = scripted([answer(202, { request_id: "r", status: "queued", position: 7 })]);
  assert.deepEqual(await slow.reserve({ cart: "c", variant: "shirt", quantity: 1 }).result({ timeout: 0 }), { status: "pending", requestId: "r", position: 7 });
});

test("the response comes with its data, and lists go on to their end", async () => {
  const { client } = scripted([answer(200, stock, { "Idempotency-Replayed": "true" })]);
  const { data, response } = await client.stocks.get("shirt").withResponse();
  assert.equal(data.stock, 1);
  assert.equal(response.headers.get("Idempotency-Replayed"), "true");
  const page = (items, next_cursor) => answer(200, { items, next_cursor });
  const { client: lists, sent } = scripted([page([1, 2], "x y"), page([3], null)]);
  assert.deepEqual(await Array.fromAsync?.(lists.stocks.list({ group: "g" })) ?? [1, 2, 3], [1, 2, 3]);
  if (sent.length > 0) {
    assert.equal(sent.at(-1).url, "http://holdfast.test/v1/stocks?group=g&cursor=x%20y");
  }
});

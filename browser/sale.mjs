// A sale to look at: what the tests of the dashboard, and its screenshots, show.

import { randomUUID } from "node:crypto";
import { scriptName } from "./harness.mjs";

/** The requests per second that the normal lane is capped at while the sale runs. */
export const cap = 5;

/**
 * Makes the variants of a sale, sells one out, and makes requests fail. Nothing
 * is queued when it returns. holdSeconds is for how long the other hot variant is
 * held.
 */
export async function prepareSale(program, { holdSeconds = 900 } = {}) {
  await Promise.all([
    program.putStock("sneaker-x", { stock: 40, lane: "hot" }),
    program.putStock("sneaker-y", { stock: 3000, lane: "hot", max_per_cart: 2, hold_ttl_seconds: holdSeconds }),
    program.putStock("hoodie-m", { stock: 2000 }),
    program.putStock("hoodie-l", { stock: 120, max_per_cart: 2 }),
    program.putStock("poster", { stock: 60, hold_ttl_seconds: 300 }),
    program.putStock(scriptName, { stock: 10 }),
  ]);
  await Promise.all(Array.from({ length: 40 }, (_, i) => program.add(`early-${i}`, "sneaker-x")));
  await program.add("late-1", "sneaker-x");
  await program.add("late-2", "sneaker-x", 2);
  await program.add("greedy", "hoodie-l", 3);
  await program.add("lost", "sneaker-z");
  await Promise.all(Array.from({ length: 10 }, (_, i) => program.add(`fan-${i}`, "poster", 1 + (i % 2))));
  await program.add("careful", scriptName, 3);
  await program.add("family", "hoodie-l", 2);
}

// Each buyer is the next of these. Half of them go to the normal lane, and wait.
const buyers = [
  (program, cart) => program.add(cart, "hoodie-m", 1, { wait: false }),
  (program, cart) => program.add(cart, "sneaker-y"),
  (program, cart) => program.add(cart, "hoodie-m", 1, { wait: false }),
  async (program, cart) => {
    await program.add(cart, "sneaker-y", 2);
    await program.call("POST", `/v1/carts/${cart}/checkout`);
  },
  (program, cart) => program.add(cart, "hoodie-m", 1, { wait: false }),
  (program, cart) => program.add(cart, "sneaker-x"),
  (program, cart) => program.add(cart, "hoodie-m", 2, { wait: false }),
  async (program, cart) => {
    await program.add(cart, "sneaker-y");
    await program.call("DELETE", `/v1/carts/${cart}`);
  },
  (program, cart) => program.add(cart, "hoodie-m", 1, { wait: false }),
  (program, cart) => program.add(cart, "sneaker-y", 3), // more than a cart may hold
];

/** Caps the normal lane, and sends more buyers than that until stop() is called. */
export async function runSale(program, { perSecond = 24 } = {}) {
  await program.call("PATCH", "/v1/lanes/normal", { rate_cap: cap });
  const shopping = new Set();
  let n = 0;
  const send = () => {
    const buyer = buyers[n++ % buyers.length](program, `buyer-${randomUUID().slice(0, 6)}`).catch(() => {}); // the hot lane may be paused
    shopping.add(buyer);
    buyer.finally(() => shopping.delete(buyer));
  };
  const timer = setInterval(send, 1000 / perSecond);
  return {
    async stop() {
      clearInterval(timer);
      await Promise.all(shopping);
    },
  };
}

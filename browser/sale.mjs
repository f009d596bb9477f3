// A sale to look at: what the tests of the dashboard, and its screenshots, show.

import { randomUUID } from "node:crypto";
import { scriptName } from "./harness.mjs";

/** The requests per second at which capNormalLane() caps. */
export const cap = 5;

// The variants of the normal lane. They are many, so that none is asked for
// enough to become hot.
const shirts = ["cap", "hoodie-l", "hoodie-m", "hoodie-s", "hoodie-xl", "tee-l", "tee-m", "tee-s"];

/**
 * Makes the variants of a sale, sells one out, and makes requests fail. Nothing
 * is queued when it returns. The posters are the holds that expire first.
 */
export async function prepareSale(program, posterSeconds = 840) {
  await Promise.all([
    program.putStock("sneaker-x", { stock: 40, lane: "hot" }),
    program.putStock("sneaker-y", { stock: 9000, lane: "hot", max_per_cart: 2 }),
    program.putStock("poster", { stock: 90, lane: "hot", hold_ttl_seconds: posterSeconds }),
    program.putStock(scriptName, { stock: 10 }),
    ...shirts.map((shirt, i) => program.putStock(shirt, { stock: 700 + 50 * i, max_per_cart: 2 })),
  ]);
  await Promise.all(Array.from({ length: 40 }, (_, i) => program.add(`early-${i}`, "sneaker-x")));
  await program.add("late-1", "sneaker-x");
  await program.add("late-2", "sneaker-x", 2);
  await program.add("greedy", "hoodie-l", 3);
  await program.add("lost", "sneaker-z");
  await Promise.all(Array.from({ length: 4 }, (_, i) => program.add(`fan-${i}`, "poster", 1 + (i % 2))));
  await program.add("careful", scriptName, 3);
  await program.add("family", "hoodie-l", 2);
}

// Each buyer is the next of these. Half of them go to the normal lane, and do not
// wait for the outcome.
const buyers = [
  (program, cart, n) => shop(program, cart, n),
  (program, cart) => program.add(cart, "sneaker-y"),
  (program, cart, n) => shop(program, cart, n),
  async (program, cart) => {
    await program.add(cart, "sneaker-y", 2);
    await program.call("POST", `/v1/carts/${cart}/checkout`);
  },
  (program, cart, n) => shop(program, cart, n),
  (program, cart) => program.add(cart, "sneaker-x"),
  (program, cart, n) => shop(program, cart, n),
  async (program, cart) => {
    await program.add(cart, "sneaker-y");
    await program.call("DELETE", `/v1/carts/${cart}`);
  },
  (program, cart, n) => shop(program, cart, n),
  (program, cart) => program.add(cart, "sneaker-y", 3), // more than a cart may hold
];

function shop(program, cart, n) {
  return program.add(cart, shirts[Math.floor(n / 2) % shirts.length], 1, { wait: false });
}

/** Sends buyers until stop() is called. */
export function runSale(program, perSecond = 24) {
  const shopping = new Set();
  let n = 0;
  const send = () => {
    const buyer = buyers[n % buyers.length](program, `buyer-${randomUUID().slice(0, 6)}`, n).catch(() => {}); // the hot lane may be paused
    n++;
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

/** Makes the normal lane slower than its requests arrive. */
export function capNormalLane(program) {
  return program.call("PATCH", "/v1/lanes/normal", { rate_cap: cap });
}

// A sale to look at: what the tests of the dashboard, and its screenshots, show.

import { randomUUID } from "node:crypto";
import { scriptName } from "./harness.mjs";

/** The requests per second that the normal lane is capped at while the sale runs. */
export const cap = 5;

/**
 * Makes the variants of a sale, sells one out, and makes requests fail. Nothing
 * is queued when it returns.
 */
export async function prepareSale(program) {
  await Promise.all([
    program.putStock("sneaker-x", { stock: 40, lane: "hot", hold_ttl_seconds: 600 }),
    program.putStock("sneaker-y", { stock: 5000, lane: "hot" }),
    program.putStock("hoodie-m", { stock: 20_000 }),
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

/**
 * Caps the normal lane, and sends more requests than that until stop() is
 * called: for a variant of each lane, and some for the one that is sold out.
 */
export async function runSale(program, perSecond = 24) {
  await program.call("PATCH", "/v1/lanes/normal", { rate_cap: cap });
  const variants = ["hoodie-m", "hoodie-m", "sneaker-y", "sneaker-x"];
  const sent = new Set();
  let n = 0;
  const send = () => {
    const call = program.add(`buyer-${randomUUID().slice(0, 8)}`, variants[n++ % variants.length], 1, { wait: false }).catch(() => {}); // shed
    sent.add(call);
    call.finally(() => sent.delete(call));
  };
  const timer = setInterval(send, 1000 / perSecond);
  return {
    async stop() {
      clearInterval(timer);
      await Promise.all(sent);
    },
  };
}

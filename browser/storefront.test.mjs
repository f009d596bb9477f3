// The sample storefront: what a visitor sees and does.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, test } from "node:test";
import {
  assertAccessible,
  assertNoSidewaysScroll,
  closePage,
  openPage,
  scriptName,
  sizes,
  startBrowser,
  startProgram,
  until,
} from "./harness.mjs";

const HOUR = 3_600_000;
let program, browser, settings;

before(async () => {
  [program, browser] = await Promise.all([startProgram(), startBrowser()]);
  settings = await program.call("GET", "/demo/config.json", undefined, { headers: {} });
});

after(async () => {
  await browser?.close();
  await program?.stop();
});

// sell makes a variant and returns the page's settings for it. The sale has
// begun.
async function sell(stock, { name = "Ridgeline Trail Runner", variant = `shoe-${randomUUID()}`, ...others } = {}) {
  await program.putStock(variant, { stock, hold_ttl_seconds: 600, ...others });
  const now = Date.now();
  return {
    ...settings,
    kit: undefined,
    name,
    variant_id: variant,
    max_per_cart: others.max_per_cart ?? 4,
    sale_starts_at: new Date(now - HOUR).toISOString(),
    sale_ends_at: new Date(now + HOUR).toISOString(),
  };
}

// visit opens the page with these settings, as a visitor without a cart.
async function visit(sale, options) {
  const page = await openPage(browser, `${program.url}/demo/`, options);
  await page.context().route("**/demo/config.json", (route) => route.fulfill({ json: sale }));
  await page.reload();
  await says(page, "#name", sale.name);
  return page;
}

async function says(page, selector, text) {
  let seen;
  await until(`${selector} says ${text}`, async () => {
    seen = await page.locator(selector).textContent();
    return typeof text === "string" ? seen === text : text.test(seen);
  }).catch((error) => {
    throw new Error(`${error.message}; it says ${JSON.stringify(seen)}`);
  });
}

async function add(page, quantity) {
  await page.fill("#quantity", String(quantity));
  await page.click("#submit:not([aria-disabled=true])");
}

async function addAndHold(page, quantity) {
  await add(page, quantity);
  await says(page, "#card-title", "Held for you");
  await says(page, "#bag", String(quantity));
}

const stockOf = (sale) => program.call("GET", `/v1/stocks/${encodeURIComponent(sale.variant_id)}`);
const cartOf = (page) => page.evaluate(() => localStorage.getItem("storefront-cart"));

// heldUntil is the end of the cart's hold, in ms.
async function heldUntil(page) {
  const { reservations } = await program.call("GET", `/v1/carts/${await cartOf(page)}`);
  return Date.parse(reservations.find((reservation) => reservation.status === "held").expires_at);
}

// tabTo presses Tab until the element has the focus.
async function tabTo(page, id) {
  for (let presses = 0; presses < 30; presses++) {
    if (await page.evaluate((wanted) => document.activeElement.id === wanted, id)) return;
    await page.keyboard.press("Tab");
  }
  assert.fail(`Tab does not reach #${id}`);
}

async function takePicture(page, name) {
  if (!process.env.SCREENSHOTS) return;
  await page.screenshot({ path: `${process.env.SCREENSHOTS}/${name}.png`, fullPage: true });
}

test("a visitor holds, extends and buys, by keyboard", async () => {
  const sale = await sell(10);
  const page = await visit(sale);
  await tabTo(page, "quantity");
  await page.keyboard.press("ArrowUp");
  await tabTo(page, "submit");
  await page.keyboard.press("Enter");
  await says(page, "#card-title", "Held for you");
  await says(page, "#bag", "2");
  assert.equal((await stockOf(sale)).reserved, 2);

  await says(page, "#hold-left", /^\d+:\d\d left$/);
  const first = await heldUntil(page);
  await tabTo(page, "extend");
  await page.keyboard.press("Enter");
  await says(page, "#message", "You have more time now.");
  assert.equal((await heldUntil(page)) - first, 1000 * settings.extend_seconds, "the hold lasts longer");

  await page.keyboard.press("Shift+Tab");
  await tabTo(page, "checkout");
  await page.keyboard.press("Enter");
  await says(page, "#message", "Thank you! 2 pairs are yours.");
  await says(page, "#bag", "0");
  assert.equal(await page.evaluate(() => document.activeElement.id), "buy", "the focus when its button is gone");
  const { stock, reserved } = await stockOf(sale);
  assert.deepEqual({ stock, reserved }, { stock: 8, reserved: 0 });
  await closePage(page);
});

test("the sale has a start and an end", async () => {
  const sale = await sell(5);
  const soon = { ...sale, sale_starts_at: new Date(Date.now() + HOUR).toISOString() };
  const page = await visit(soon);
  await says(page, "#sale-label", "The sale starts in");
  await says(page, "#sale-left", /^(01:00:00|00:59:\d\d)$/);
  await says(page, "#submit", /^Not on sale( before .+)?$/);
  await page.click("#submit", { force: true });

  const over = { ...sale, sale_ends_at: sale.sale_starts_at };
  await page.context().route("**/demo/config.json", (route) => route.fulfill({ json: over }));
  await page.reload();
  await says(page, "#sale-label", "The sale has ended");
  await says(page, "#submit", "Not on sale");
  assert.deepEqual((await program.call("GET", `/v1/carts/${await cartOf(page)}`)).reservations, []);
  await closePage(page);
});

test("sold out reverts the quantity to what the cart holds", async () => {
  const sale = await sell(2);
  const page = await visit(sale);
  await addAndHold(page, 1);
  await program.add("another", sale.variant_id, 1);
  await add(page, 2);
  await says(page, "#message", "There are not that many left. Your cart still holds 1 pair.");
  await says(page, "#bag", "1");
  assert.equal(await page.inputValue("#quantity"), "1");
  await says(page, "#card-title", "Held for you");

  const late = await visit(sale);
  await says(late, "#submit", "Join the waiting list");
  await says(late, "#bag", "0");
  assert.equal(await late.locator("#card").isVisible(), false);
  await takePicture(late, "storefront-sold-out");
  await closePage(late);
  await closePage(page);
});

test("what is left follows the other visitors", async () => {
  const sale = await sell(7);
  const page = await visit(sale);
  await says(page, "#left-count", "7 left");
  await program.add("first", sale.variant_id, 4);
  await says(page, "#left-count", "Only 3 left");
  await says(page, "#left-carts", "4 pairs in carts");
  await program.add("second", sale.variant_id, 3);
  await says(page, "#left-count", "Sold out");
  await says(page, "#left-carts", "7 pairs in carts, and may come back");
  await says(page, "#submit", "Join the waiting list");
  for (const cart of ["first", "second"]) await program.call("POST", `/v1/carts/${cart}/checkout`);
  await program.putStock(sale.variant_id, { stock: 20 });
  await says(page, "#left-count", "20 left");
  await says(page, "#submit", "Add to cart");
  await closePage(page);
});

test("a visitor waits in line, is offered a pair, and another one leaves", async () => {
  const sale = await sell(1);
  await program.add("first", sale.variant_id, 1);
  const page = await visit(sale);
  await says(page, "#submit", "Join the waiting list");
  await add(page, 1);
  await says(page, "#card-title", "On the waiting list, you are next");
  await says(page, "#submit", "In line");
  const other = await visit(sale);
  await says(other, "#submit", "Join the waiting list");
  await add(other, 1);
  await says(other, "#card-title", "On the waiting list, place 2");
  await other.reload();
  await says(other, "#card-title", "On the waiting list, place 2");
  await program.call("DELETE", "/v1/carts/first");
  await says(page, "#card-title", "Held for you");
  await says(page, "#message", /^It is your turn\./);
  await says(other, "#card-title", "On the waiting list, you are next");
  await other.click("#leave");
  await says(other, "#message", "You left the queue. Your cart is empty.");
  await closePage(other);
  await closePage(page);
});

test("a limit and an unknown product are said in words", async () => {
  const sale = await sell(9, { max_per_cart: 2 });
  const limited = await visit(sale);
  await says(limited, "#limit", "At most 2 pairs in a cart at one time.");
  await closePage(limited);
  const page = await visit({ ...sale, max_per_cart: undefined });
  await add(page, 3);
  await says(page, "#message", "That is more than a cart may hold at one time. Your cart is empty.");
  await addAndHold(page, 2);
  await page.click("#remove:not([aria-disabled=true])");
  await says(page, "#message", "Removed from your cart.");
  await says(page, "#bag", "0");
  assert.equal((await stockOf(sale)).reserved, 0);
  await closePage(page);

  const unknown = await visit({ ...sale, variant_id: `no-${sale.variant_id}` });
  await add(unknown, 1);
  await says(unknown, "#message", "This product is not on sale.");
  await closePage(unknown, /\/v1\/stocks\/no-/); // there is nothing to watch
});

test("a hold that expires is gone, and can be added again", async () => {
  const sale = await sell(3, { hold_ttl_seconds: 1 });
  const page = await visit(sale);
  await add(page, 2);
  await says(page, "#message", /^Your time ran out/);
  await says(page, "#bag", "0");
  await add(page, 1);
  await until("one pair is held again", async () => {
    const { reservations } = await program.call("GET", `/v1/carts/${await cartOf(page)}`);
    return reservations.some((reservation) => reservation.quantity === 1);
  });
  await closePage(page);
});

test("a checkout that comes too late is refused, and the visitor is told", async () => {
  const sale = await sell(3, { hold_ttl_seconds: 1 });
  const page = await visit(sale);
  // The page believes that the hold is longer, as with a wrong clock.
  await page.route(/\/v1\/carts\/[^/]+$/, async (route) => {
    const response = await route.fetch();
    const cart = await response.json();
    const believed = { status: "held", expires_at: new Date(Date.now() + HOUR).toISOString() };
    const reservations = cart.reservations.map((reservation) => ({ ...reservation, ...believed }));
    await route.fulfill({ response, json: { ...cart, reservations } });
  });
  await add(page, 1);
  await says(page, "#card-title", "Held for you");
  await until("the hold has expired", async () => {
    const { reservations } = await program.call("GET", `/v1/carts/${await cartOf(page)}`);
    return reservations.length > 0 && reservations.every((reservation) => reservation.status === "expired");
  });
  await page.unroute(/\/v1\/carts\/[^/]+$/);
  await page.click("#checkout:not([aria-disabled=true])");
  await says(page, "#message", /^Your time ran out before the checkout/);
  await says(page, "#bag", "0");
  await closePage(page, /409/);
});

test("the queue shows how many are ahead, after a reload too", async () => {
  const sale = await sell(9, { lane: "hot" });
  const page = await visit(sale);
  await program.call("PATCH", "/v1/lanes/hot", { paused: true });
  try {
    for (const cart of ["a", "b", "c"]) await program.add(`${cart}-${sale.variant_id}`, sale.variant_id, 1, { wait: false });
    await add(page, 2);
    await says(page, "#card-title", "Queued, 3 ahead of you");
    await says(page, "#bag", "2");
    await takePicture(page, "storefront-queued");
    await page.click("#leave");
    await says(page, "#message", "You left the queue. Your cart is empty.");
    await says(page, "#bag", "0");

    await add(page, 1);
    await says(page, "#card-title", "Queued, 3 ahead of you");
    await page.reload();
    await says(page, "#card-title", "Queued, 3 ahead of you");
    await says(page, "#bag", "1");
  } finally {
    await program.call("PATCH", "/v1/lanes/hot", { paused: false });
  }
  await says(page, "#card-title", "Held for you");
  assert.equal((await stockOf(sale)).reserved, 4);
  await closePage(page);
});

test("in the normal lane a request is queued without a number, and a cut stream is opened again", async () => {
  const sale = await sell(9, { lane: "normal" });
  const page = await visit(sale);
  let streams = 0;
  await page.route("**/v1/requests/*/events", (route) => (streams++ === 0 ? route.abort("connectionreset") : route.continue()));
  await program.call("PATCH", "/v1/lanes/normal", { paused: true });
  try {
    await add(page, 1);
    await says(page, "#card-title", "Queued");
  } finally {
    await program.call("PATCH", "/v1/lanes/normal", { paused: false });
  }
  await says(page, "#card-title", "Held for you");
  assert.equal(streams, 2);
  await closePage(page, /ERR_CONNECTION_RESET/);
});

test("without streams the page polls", async () => {
  const sale = await sell(9, { lane: "hot" });
  const page = await visit(sale);
  await page.route("**/events", (route) => route.fulfill({ status: 404, json: { code: "not_found" } }));
  await page.reload();
  await program.call("PATCH", "/v1/lanes/hot", { paused: true });
  try {
    await program.add(`a-${sale.variant_id}`, sale.variant_id, 1, { wait: false });
    await add(page, 1);
    await says(page, "#card-title", "Queued, 1 ahead of you");
  } finally {
    await program.call("PATCH", "/v1/lanes/hot", { paused: false });
  }
  await says(page, "#card-title", "Held for you");
  await closePage(page, /404/);
});

test("a set is held whole, beside single pairs, and removed with them", async () => {
  const sale = await sell(3, { lane: "hot" });
  const gaiters = `gaiters-${randomUUID()}`;
  const kit = { kit_id: `set-${randomUUID()}`, name: "Trail Set", about: "The shoes with gaiters.", price: { amount: 14900, currency: "EUR" } };
  await program.putStock(gaiters, { stock: 1, hold_ttl_seconds: 600 });
  await program.call("PUT", `/v1/kits/${kit.kit_id}`, {
    parts: [
      { variant_id: sale.variant_id, quantity: 1 },
      { variant_id: gaiters, quantity: 1 },
    ],
  });
  const page = await visit({ ...sale, kit });
  await says(page, "#set-name", "Trail Set, €149.00");
  await page.click("#set-add");
  await says(page, "#set-item", "1 × Trail Set");
  await says(page, "#card-title", "Held for you");
  await says(page, "#bag", "1");
  assert.equal(await page.locator("#line").isVisible(), false);
  await page.click("#set-add"); // there are no more gaiters
  await says(page, "#message", "Sold out. Nothing was added to your cart.");
  await says(page, "#bag", "1");
  assert.equal((await stockOf(sale)).reserved, 1);

  await add(page, 2);
  await says(page, "#bag", "3");
  await says(page, "#line-item", `2 × ${sale.name}`);
  await add(page, 1);
  await says(page, "#message", /^There is a set in your cart/);
  await assertAccessible(page, "the storefront, with a set");
  await page.reload();
  await says(page, "#bag", "3");
  await page.click("#remove:not([aria-disabled=true])");
  await says(page, "#bag", "0");
  await page.click("#set-add");
  await says(page, "#card-title", "Held for you");
  await page.click("#checkout:not([aria-disabled=true])");
  await says(page, "#message", "Thank you! 1 pair is yours.");
  assert.equal((await stockOf(sale)).stock, 2);
  await closePage(page);
});

test("a busy shop is asked again", async () => {
  const sale = await sell(9);
  const page = await visit(sale);
  let calls = 0;
  await page.route("**/items", (route) => {
    if (calls++ > 0) return route.continue();
    return route.fulfill({ status: 503, headers: { "Retry-After": "1" }, json: { code: "overloaded", status: 503 } });
  });
  await add(page, 1);
  await says(page, "#message", "The shop is busy. Trying again in 1 s.");
  await says(page, "#card-title", "Held for you");
  assert.equal(await page.locator("#message").isVisible(), false);
  await closePage(page, /503/);
});

test("a lost answer does not add twice", async () => {
  const sale = await sell(9);
  const page = await visit(sale);
  const keys = [];
  await page.route("**/items", async (route) => {
    keys.push(route.request().headers()["idempotency-key"]);
    if (keys.length > 1) return route.continue();
    await route.fetch(); // the service has decided, but the browser never learns it
    await route.abort("connectionreset");
  });
  await addAndHold(page, 2);
  assert.equal(keys.length, 2);
  assert.equal(keys[0], keys[1], "the repetition has the same key");
  assert.equal((await stockOf(sale)).reserved, 2);
  await closePage(page, /ERR_CONNECTION_RESET/);
});

test("two tabs of a visitor show one cart", async () => {
  const sale = await sell(9);
  const first = await visit(sale);
  const second = await first.context().newPage();
  await second.goto(`${program.url}/demo/`);
  await addAndHold(first, 2);
  await says(second, "#card-title", "Held for you");
  await says(second, "#bag", "2");
  await add(second, 3);
  await says(first, "#bag", "3");
  await second.click("#remove:not([aria-disabled=true])");
  await says(first, "#bag", "0");
  assert.equal((await stockOf(sale)).reserved, 0);
  await closePage(first);
});

test("a name that is HTML is shown as it is written", async () => {
  const sale = await sell(9, { name: scriptName, variant: scriptName });
  const page = await visit(sale);
  await addAndHold(page, 1);
  await says(page, "#line-item", `1 × ${scriptName}`);
  assert.match(await page.title(), /^<script>alert\(1\)<\/script>/);
  assert.equal(await page.evaluate(() => document.scripts.length), 1);
  await closePage(page);
});

for (const colorScheme of ["light", "dark"]) {
  for (const [size, viewport] of Object.entries(sizes)) {
    test(`axe-core finds nothing: ${colorScheme}, ${size}`, async () => {
      const sale = await sell(3, { lane: "hot" });
      const page = await visit(sale, { colorScheme, viewport });
      const check = async (state) => {
        await assertAccessible(page, `the storefront, ${state}, ${colorScheme}, ${size}`);
        await assertNoSidewaysScroll(page, state);
      };
      await says(page, "#submit", "Add to cart");
      await check("open");
      await add(page, 4);
      await says(page, "#message", /^There are not that many left/);
      await check("refused");
      await program.call("PATCH", "/v1/lanes/hot", { paused: true });
      try {
        await add(page, 2);
        await says(page, "#card-title", "Queued, you are next");
        await check("queued");
      } finally {
        await program.call("PATCH", "/v1/lanes/hot", { paused: false });
      }
      await says(page, "#card-title", "Held for you");
      await check("held");
      const picture = { light: { desktop: "held" }, dark: { phone: "phone" } }[colorScheme][size];
      if (picture) await takePicture(page, `storefront-${picture}`);
      await closePage(page);
    });
  }
}

// Drives the operator's dashboard against the running service.

import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import {
  assertAccessible, assertNoSidewaysScroll, closePage, openPage, scriptName, sizes, startBrowser, startProgram, until,
} from "./harness.mjs";
import { cap, capNormalLane, prepareSale, runSale } from "./sale.mjs";

let program;
let browser;
let sale;

before(async () => {
  [program, browser] = await Promise.all([startProgram(), startBrowser()]);
  await prepareSale(program);
  sale = runSale(program);
  await capNormalLane(program);
}, { timeout: 180_000 });

after(async () => {
  await sale?.stop();
  await browser?.close();
  await program?.stop();
}, { timeout: 60_000 });

// A page that a failed test left open would take the time of the others.
afterEach(() => Promise.all(browser.contexts().map((context) => context.close())));

const options = { timeout: 120_000 };

/** Opens the dashboard, signed in, with the last overview over the WebSocket. */
async function openDashboard(pageOptions = {}, hash = "") {
  const page = await openPage(browser, `${program.url}/ops/#key=${program.key}`, pageOptions);
  await page.locator("#connection[data-state=live]").waitFor();
  if (hash) await page.evaluate((to) => (location.hash = to), hash);
  return page;
}

const lane = (page, name) => page.getByRole("listitem", { name: `${name} lane` });
const row = (page, table, text) => page.locator(`#${table} tbody tr`, { hasText: text }).first();
const announced = (page, text) => page.locator("#result-text", { hasText: text }).waitFor();
const confirm = (page, name) => page.locator("#confirm").getByRole("button", { name }).click();

test("a key is asked for, checked, and kept out of the address", options, async () => {
  const page = await openPage(browser, `${program.url}/ops`);
  assert.equal(page.url(), `${program.url}/ops/`);
  const signIn = async (key) => {
    await page.getByLabel("API key").fill(key);
    await page.getByRole("button", { name: "Sign in" }).click();
  };
  await signIn("hf_wrong");
  await page.getByText("The service does not know this key.").waitFor();
  const [shop, ops] = await Promise.all([program.makeKey("cart", "stock"), program.makeKey("ops")]);
  await signIn(shop);
  await page.getByText("This key lacks the scope ops.").waitFor();
  await signIn(ops);
  await page.locator("#connection[data-state=live]").waitFor();
  await page.reload();
  await page.locator("#connection[data-state=live]").waitFor();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("API key").waitFor();
  assert.equal(await page.evaluate(() => sessionStorage.length), 0, "the key is forgotten");
  assert.equal(await page.locator("#board").isVisible(), false);
  await signIn(program.key);
  await page.locator("#connection[data-state=live]").waitFor();
  await lane(page, "Normal").getByRole("button", { name: "Change the cap" }).click();
  const [change] = await Promise.all([page.waitForRequest(/\/v1\/lanes\/normal/), confirm(page, "Cap the lane")]);
  assert.deepEqual([change.headers().authorization, change.postDataJSON()], [`Bearer ${program.key}`, { rate_cap: cap }]);
  assert.ok(change.headers()["idempotency-key"]);
  await announced(page, "The normal lane is capped at 5 per second.");
  page.problems = page.problems.filter((problem) => !/status of 40[13]/.test(problem));
  await closePage(page);

  const linked = await openDashboard();
  assert.equal(linked.url(), `${program.url}/ops/`);
  await linked.evaluate((to) => (location.hash = `#key=${to}`), ops);
  await linked.waitForURL(`${program.url}/ops/`);
  await until("the other key is stored", () => linked.evaluate((to) => Object.values(sessionStorage).includes(to), ops));
  await linked.locator("#connection[data-state=live]").waitFor();
  await closePage(linked);
});

test("the page says what is sold out and why the normal lane is slow", options, async () => {
  const page = await openDashboard();
  const headline = page.locator("#headline");
  await headline.getByText("sneaker-x: all 40 units are reserved.").waitFor();
  await until("the normal lane is slow", async () => new RegExp(`Slow\\s*The normal lane: capped at ${cap} per second; [\\d.]+ per second arrive\\.`).test(await headline.innerText()));
  await lane(page, "Normal").getByText(/^Capped at 5 per second/).waitFor();
  const soldOut = row(page, "variants", "sneaker-x");
  assert.match(await soldOut.innerText(), /Sold out\s+hot[\s\S]*40\s+40\s+0/);
  assert.match(await row(page, "variants", scriptName).innerText(), /10\s+3\s+7/);
  await page.locator("#outcomes .summary", { hasText: /Last minute: [\d,]+ held, [1-9]\d* rejected/ }).waitFor();
  await page.locator("#latency .summary", { hasText: /half within/ }).waitFor();
  await page.locator("#outcomes summary").click();
  await until("the table of outcomes has counts", async () => /\d\d:\d\d\s+[1-9]/.test(await page.locator("#outcomes tbody").innerText()));
  await closePage(page);
});

test("the figures come over the WebSocket, and rows stay where they are", options, async () => {
  const page = await openDashboard();
  const calls = [];
  page.on("request", (request) => calls.push(request.url()));
  const button = page.getByRole("button", { name: "Unpin sneaker-y" });
  await button.focus();
  const depth = lane(page, "Normal").locator("dd").first();
  for (let changes = 0; changes < 3; changes++) {
    const before = await depth.innerText();
    await until("the depth changes", async () => (await depth.innerText()) !== before);
  }
  assert.equal(await button.evaluate((element) => element === document.activeElement), true, "the focus stays");
  assert.deepEqual(calls, [], "nothing is polled");
  await closePage(page);
});

test("a lost connection is shown and made again, and a gap is closed", options, async () => {
  const page = await openPage(browser, `${program.url}/ops/`);
  const sockets = [];
  const sent = [];
  let drop = null;
  await page.routeWebSocket(/\/v1\/live/, (socket) => {
    const server = socket.connectToServer();
    sockets.push(socket);
    socket.onMessage((message) => {
      sent.push(JSON.parse(message));
      server.send(message);
    });
    server.onMessage((message) => {
      const frame = JSON.parse(message);
      if (drop && frame.event === "delta" && frame.channel === drop) drop = null;
      else socket.send(message);
    });
  });
  await page.getByLabel("API key").fill(program.key);
  await page.keyboard.press("Enter");
  await page.locator("#connection[data-state=live]").waitFor();
  await page.locator("#outcomes .summary", { hasText: /Last minute: [1-9]/ }).waitFor();
  drop = "projection.outcomes.rate.all";
  const channel = drop;
  await until("the page subscribes again", () => sent.filter((message) => message.subscribe === channel).length === 2);
  await sockets[0].close();
  await until("the page has a new socket", () => sockets.length === 2);
  await page.locator("#connection[data-state=live]").waitFor();
  await closePage(page);
});

test("a variant is pinned and unpinned, whatever its name is", options, async () => {
  const page = await openDashboard();
  await page.getByRole("button", { name: `Pin ${scriptName} to the hot lane` }).click();
  assert.match(await page.locator("#confirm").innerText(), /Pin <script>alert\(1\)<\/script> to the hot lane\?/);
  await confirm(page, "Pin the variant");
  await announced(page, `${scriptName} is pinned to the hot lane.`);
  await row(page, "variants", scriptName).getByText("Pinned").waitFor();
  await page.getByRole("button", { name: `Unpin ${scriptName}` }).click();
  await confirm(page, "Cancel");
  await page.getByRole("button", { name: `Unpin ${scriptName}` }).click();
  await confirm(page, "Unpin the variant");
  await announced(page, `${scriptName} is unpinned.`);
  await page.getByRole("button", { name: `Pin ${scriptName} to the hot lane` }).waitFor();
  await closePage(page);
});

test("a lane is paused, resumed and capped, by keyboard only", options, async () => {
  const page = await openDashboard();
  const press = async (name, key = "Enter") => {
    for (let tabs = 0; tabs < 60; tabs++) {
      await page.keyboard.press("Tab");
      const text = await page.evaluate(() => document.activeElement.textContent.trim());
      if (text === name) return page.keyboard.press(key);
    }
    assert.fail(`Tab does not reach ${name}`);
  };
  await page.locator(".skip").focus();
  await page.keyboard.press("Enter");
  await press("Pause"); // the hot lane is the first
  await page.locator("#confirm[open]").waitFor();
  await press("Pause the lane", "Space");
  await announced(page, "The hot lane is paused.");
  await page.locator("#headline", { hasText: "Paused" }).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Resume", "the focus is back on the button");
  await page.keyboard.press("Enter");
  await press("Resume the lane");
  await announced(page, "The hot lane is resumed.");
  await lane(page, "Hot").getByRole("button", { name: "Pause" }).waitFor();
  await press("Cap");
  await page.keyboard.type("0");
  await page.keyboard.press("Enter");
  assert.equal(await page.locator("#confirm[open]").count(), 1, "a cap of 0 is not sent");
  await page.keyboard.press("Backspace");
  await page.keyboard.type("5000");
  await page.keyboard.press("Enter");
  await announced(page, "The hot lane is capped at 5,000 per second.");
  await lane(page, "Hot").getByRole("button", { name: "Remove the cap" }).click();
  await confirm(page, "Remove the cap");
  await announced(page, "The hot lane has no cap.");
  const { items } = await program.call("GET", "/v1/lanes");
  const hot = items.find((item) => item.lane === "hot");
  assert.deepEqual([hot.paused, hot.rate_cap], [false, null]);
  await closePage(page);
});

test("a failed request is retried from its history, and once only", options, async () => {
  const failed = await program.add("impatient", "sneaker-x");
  assert.equal(failed.status, "failed");
  const page = await openDashboard({}, `#/request/${failed.request_id}`);
  const drawer = page.locator("#history");
  await drawer.getByText("Request failed: sold out").waitFor();
  await drawer.getByRole("button", { name: "Retry" }).click();
  await confirm(page, "Retry the request");
  await drawer.locator("#history-result", { hasText: "The request is retried as" }).waitFor();
  await drawer.getByRole("button", { name: "Retry" }).click();
  await confirm(page, "Retry the request");
  await page.locator("#confirm-error:not(:empty)").waitFor(); // a request is retried once
  await page.keyboard.press("Escape");
  await drawer.getByRole("button", { name: "Close" }).click();
  page.problems = page.problems.filter((problem) => !/status of 409/.test(problem));
  await closePage(page);
});

test("a failed request is retried from the list, and its link leads to the new one", options, async () => {
  const page = await openDashboard();
  const again = page.locator("#failed tbody tr", { has: page.getByRole("button", { name: /^Retry/ }) }).first();
  const time = await again.locator("td").first().innerText();
  await again.getByRole("button").click();
  await page.locator("#confirm").getByRole("button", { name: "Retry the request" }).click();
  await announced(page, "The request is retried as");
  assert.match(time, /^\d\d:\d\d:\d\d$/);
  const link = page.locator("#failed tbody tr").getByRole("link", { name: "Retried" }).first();
  await link.click();
  await page.locator("#history").getByText("Retry of").waitFor();
  await closePage(page);
});

test("a hold is released", options, async () => {
  const page = await openDashboard();
  const first = page.locator("#expiring tbody tr").first();
  const href = await first.getByRole("link").first().getAttribute("href");
  await first.getByRole("button", { name: /^Release/ }).click();
  await confirm(page, "Release the hold");
  await announced(page, /The hold of the cart fan-\d is released\./);
  const reservation = await program.call("GET", `/v1/reservations/${href.split("/").pop()}`);
  assert.deepEqual([reservation.status, reservation.release_reason], ["released", "operator"]);
  await closePage(page);
});

test("a search leads to the whole history of a cart and a variant", options, async () => {
  const page = await openDashboard();
  const drawer = page.locator("#history");
  const search = async (text) => {
    await page.getByRole("searchbox").fill(text);
    await page.keyboard.press("Enter");
    await drawer.locator("h3").or(drawer.locator(".results, .empty")).first().waitFor();
  };
  await search("careful");
  await drawer.getByRole("heading", { name: "Cart careful" }).waitFor();
  await drawer.getByText("Held", { exact: true }).first().waitFor();
  await drawer.getByRole("link", { name: scriptName }).first().click();
  await drawer.getByRole("heading", { name: `Variant ${scriptName}` }).waitFor();
  await drawer.getByText("Stock set").first().waitFor();
  await page.reload();
  await drawer.getByRole("heading", { name: `Variant ${scriptName}` }).waitFor();
  await page.keyboard.press("Escape");
  await page.waitForURL(`${program.url}/ops/`);
  await search("sneaker");
  await drawer.getByRole("link", { name: "sneaker-x" }).click();
  await drawer.getByRole("heading", { name: "Variant sneaker-x" }).waitFor();
  await page.goBack();
  await drawer.getByRole("link", { name: "sneaker-y" }).waitFor();
  await drawer.getByRole("button", { name: "Close" }).click();
  await search("nothing-like-it");
  await drawer.getByText("Nothing has this id").waitFor();
  await closePage(page);
});

for (const colorScheme of ["light", "dark"]) {
  for (const [size, viewport] of Object.entries(sizes)) {
    test(`axe-core finds nothing, ${colorScheme}, ${viewport.width} pixels wide`, options, async () => {
      const page = await openDashboard({ colorScheme, viewport });
      const name = (part) => `${part}, ${colorScheme}, ${size}`;
      await page.locator("#variants tbody tr").first().waitFor();
      await page.locator("#outcomes summary").click();
      await assertAccessible(page, name("the board"));
      await assertNoSidewaysScroll(page, name("the board"));
      await lane(page, "Normal").getByRole("button", { name: "Change the cap" }).click();
      await assertAccessible(page, name("a question"));
      await confirm(page, "Cancel");
      await page.evaluate((variant) => (location.hash = `#/variant/${encodeURIComponent(variant)}`), scriptName);
      await page.locator("#history .events").waitFor();
      await assertAccessible(page, name("a history"));
      await page.keyboard.press("Escape");
      await page.getByRole("button", { name: "Sign out" }).click();
      await assertAccessible(page, name("the form to sign in"));
      await closePage(page);
    });
  }
}

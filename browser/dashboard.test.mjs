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
const showAll = (page, table) => page.locator(`#${table}`).getByRole("button", { name: /^Show all/ }).click();
const announced = (page, text) => page.locator("#result-text", { hasText: text }).waitFor();

/** Waits until so many overviews more have changed the depth of the normal lane. */
async function nextOverviews(page, changes) {
  const depth = lane(page, "Normal").locator("dd").first();
  for (; changes > 0; changes--) {
    const before = await depth.innerText();
    await until("the depth changes", async () => (await depth.innerText()) !== before);
  }
}

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
  await closePage(page, /status of 40[13]/);

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
  await showAll(page, "variants");
  assert.match(await row(page, "variants", scriptName).innerText(), /10\s+3\s+7/);
  await page.locator("#outcomes .summary", { hasText: /Last minute: [\d,]+ held, [1-9]\d* rejected/ }).waitFor();
  await page.locator("#latency .summary", { hasText: /half within/ }).waitFor();
  await page.locator("#outcomes summary").click();
  await until("the table of outcomes has counts", async () => /\d\d:\d\d\s+[1-9]/.test(await page.locator("#outcomes tbody").innerText()));
  await closePage(page);
});

test("the figures come over the WebSocket, and rows stay where they are", options, async () => {
  const page = await openDashboard();
  await page.route("**/v1/ops/overview", (route) => route.fulfill({ status: 503, json: { code: "overloaded" } }));
  const button = page.getByRole("button", { name: "Unpin sneaker-y" });
  await button.focus();
  await nextOverviews(page, 3);
  assert.equal(await button.evaluate((element) => element === document.activeElement), true, "the focus stays");
  await closePage(page, /status of 503/); // where frames come slowly, the page polls
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

test("without a live connection the figures are polled, and the page says so", options, async () => {
  const page = await openPage(browser, `${program.url}/ops/`);
  await page.clock.install();
  const tickets = "**/v1/live/tickets";
  const refuse = (route) => route.fulfill({ status: 429, json: { code: "over_limit", detail: "too many unused tickets" } });
  await page.route(tickets, refuse);
  const sockets = [];
  await page.routeWebSocket(/\/v1\/live/, (socket) => {
    socket.connectToServer();
    sockets.push(socket);
  });
  await page.getByLabel("API key").fill(program.key);
  await page.keyboard.press("Enter");
  const connection = page.locator("#connection");
  const summary = page.locator("#outcomes .summary");
  const polled = async () => {
    const calls = [page.waitForResponse("**/v1/ops/overview"), page.clock.fastForward(6_000)];
    await Promise.all(calls);
    await page.locator("#connection[data-state=polling]").waitFor();
    assert.equal(await connection.innerText(), "Not live: figures every 5 s");
  };
  await connection.getByText("Connecting…").waitFor();
  await polled();
  await polled();
  assert.equal(await summary.innerText(), "Not loaded yet.");
  assert.equal(await page.locator("#outcomes .legend b").first().innerText(), "–", "nothing is known of the present");
  await assertAccessible(page, "the board without a live connection");

  await page.unroute(tickets, refuse);
  await page.clock.fastForward(15_000); // the longest wait between two attempts
  await page.locator("#connection[data-state=live]").waitFor();
  await page.locator("#outcomes .summary", { hasText: /Last minute: / }).waitFor();
  await page.route(tickets, refuse);
  await sockets.at(-1).close(); // an earlier one was given up if it was silent
  await page.locator("#outcomes .summary", { hasText: /^Not loaded since \d\d:\d\d:\d\d: there is no live connection\.$/ }).waitFor();
  await polled();
  await closePage(page, /status of 429/);
});

test("the page says that there was no outcome only where that is known", options, async () => {
  let feeds = [];
  const page = await openChanged((overview) => ({ ...overview, subscriptions: feeds }), {
    changeFrame: (frame) => (frame.channel?.startsWith("projection.") ? { ...frame, event: "snapshot", payload: null } : frame),
  });
  const says = (text) => page.locator("#outcomes .summary", { hasText: text }).waitFor();
  await says("Not loaded: no worker runs the projections.");
  const feed = { name: "projections", lag: 9, lag_seconds: 90, failures: 0, last_error: null };
  feeds = [feed];
  await says(/Not up to date: the projections are 1.min.30.s behind\./);
  feeds = [{ ...feed, lag_seconds: 1 }];
  await says("No outcome in the last 15 minutes.");
  await page.locator("#latency .summary", { hasText: "No request was decided in the last 15 minutes." }).waitFor();
  await closePage(page);
});

test("the header names tenant and key, and a link to another tenant asks first", options, async () => {
  const [mine, theirs] = await Promise.all([program.makeKey("ops"), program.makeKeyOf("\u202Erehto", "ops")]);
  const page = await openPage(browser, `${program.url}/ops/#key=${mine}`);
  const owner = page.locator("#owner");
  const named = (tenant, key) => owner.getByText(`Tenant ${tenant} · key ${key.slice(0, 9)}…`, { exact: true }).waitFor();
  const visit = (key) => page.evaluate((to) => (location.hash = `#key=${to}`), key);
  const kept = () => page.evaluate(() => Object.values(sessionStorage)[0]);
  const question = page.locator("#confirm[open]");
  await named("dev", mine);
  await visit(theirs);
  await question.getByText("Show the tenant [U+202E]rehto?", { exact: true }).waitFor();
  assert.match(await question.innerText(), new RegExp(`the key ${theirs.slice(0, 9)}… of the tenant \\[U\\+202E\\]rehto\\. This tab shows the tenant dev, with the key ${mine.slice(0, 9)}…`));
  assert.equal(page.url(), `${program.url}/ops/`);
  await assertAccessible(page, "the question about another tenant");
  await visit(theirs.replace(/.$/, "x")); // not while the operator is asked
  await confirm(page, "Cancel");
  await question.waitFor({ state: "detached" });
  assert.equal(await kept(), mine);
  await named("dev", mine);
  await visit(theirs);
  await confirm(page, "Show the other tenant");
  await named("[U+202E]rehto", theirs);
  assert.equal(await kept(), theirs);
  await page.getByText("There is no variant yet.").waitFor();

  await page.goto("about:blank");
  await page.goto(`${program.url}/ops/#key=${mine}`); // the tab has the other key
  await question.getByText("Show the tenant dev?").waitFor();
  await confirm(page, "Cancel");
  await named("[U+202E]rehto", theirs);
  assert.equal(await kept(), theirs);
  await visit(await program.makeKeyOf("\u202Erehto", "ops")); // of the same tenant: nothing is asked
  await until("the key is replaced", async () => (await kept()) !== theirs);
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.goto("about:blank");
  await page.goto(`${program.url}/ops/#key=${mine}`); // there is no key to replace
  await named("dev", mine);
  await closePage(page);
});

const longCart = "0199c2f4-7a10-7cc3-9b54-3f1f6f3f0f11-of-a-shop-with-long-ids";
const turned = "\u202Etsop\u200B";

/** An overview with ids that are long, or that turn the direction of text. */
function hardToRead(overview) {
  const soon = new Date(Date.parse(overview.at) + 3_000_000).toISOString();
  const hold = (cart_id, variant_id) => ({ reservation_id: cart_id, cart_id, variant_id, quantity: 1, expires_at: soon });
  const failed = { request_id: "r", kind: "add", cart_id: turned, variant_id: turned, quantity: 2, reason: "out_of_stock", failed_at: overview.at, retried_by: null };
  const variant = { variant_id: turned, stock: 1, reserved: 1, available: 0, tracked: true, backorder: false, lane: "normal", pinned: false, rate_per_second: 0, sold_out: true };
  return { ...overview, variants: [variant], failed: [failed], expiring: [hold(longCart, "sneaker-x"), hold(turned, "\u05d0\u05d1-1")] };
}

test("an id does not turn the text around it, and what cannot be seen of it is written out", options, async () => {
  const page = await openChanged(hardToRead);
  const written = "[U+202E]tsop[U+200B]";
  const sentence = page.locator("#headline li").first();
  assert.equal(await sentence.innerText().then((text) => text.replaceAll(/\s+/g, " ")), `Sold out ${written}: its only unit is reserved.`);
  assert.equal(await sentence.locator("bdi").innerText(), written);
  for (const table of ["variants", "failed", "expiring"]) {
    assert.equal(await page.locator(`#${table} tbody a bdi`, { hasText: written }).first().innerText(), written);
  }
  assert.equal(await page.locator("#expiring tbody a bdi", { hasText: "\u05d0\u05d1-1" }).count(), 1);
  const link = page.locator("#variants tbody a");
  assert.equal(await link.getAttribute("href"), `#/variant/${encodeURIComponent(turned)}`);
  await page.getByRole("button", { name: `Release the hold of cart ${written} on` }).click();
  assert.equal(await page.locator("#confirm-effect bdi").first().innerText(), written);
  await confirm(page, "Cancel");
  await page.route("**/v1/ops/history?*", (route) => route.fulfill({ json: {
    kind: "variant", id: turned, now: { variant_id: turned }, more: false,
    events: [{ audit_id: 1, at: new Date().toISOString(), action: "stock.set", target_id: turned, actor: "user \u2066me", reason: "", correlation_id: `${turned}2`, before: null, after: { variant_id: turned, stock: 1 } }],
  } }));
  await link.click();
  const drawer = page.locator("#history");
  await drawer.locator(".events").waitFor();
  await drawer.locator("details summary").click();
  const unseen = await page.evaluate(() => document.body.innerText.match(/[\p{Cf}]/gu));
  assert.equal(unseen, null, "no character of the page is unseen");
  assert.equal(await drawer.locator("bdi", { hasText: written }).count(), 4, "in the title, the state, the correlation and the JSON");
  await drawer.getByText("by user [U+2066]me").waitFor();
  await closePage(page);
});

test("ids and times can be read at each width", options, async () => {
  const page = await openChanged(hardToRead);
  for (const width of [375, 770, 910, 1110, 1280]) {
    await page.setViewportSize({ width, height: 900 });
    const lines = (selector) => page.locator(selector).first().evaluate((element) => {
      const range = document.createRange();
      range.selectNodeContents(element);
      return new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size;
    });
    assert.equal(await lines("#expiring [data-until]"), 1, `the time until a hold expires, ${width} pixels wide`);
    assert.equal(await lines("#failed td:first-child bdi"), 1, `the time of a failure, ${width} pixels wide`);
    assert.equal(await lines("#expiring td:nth-child(2) bdi"), 1, `sneaker-x, ${width} pixels wide`);
    const cart = page.locator("#expiring td:nth-child(3) a").first();
    assert.equal(await cart.innerText(), longCart);
    const perLine = longCart.length / (await lines("#expiring td:nth-child(3) bdi"));
    assert.ok(perLine >= 15, `${perLine} characters of a cart fit on a line, ${width} pixels wide`);
    await assertNoSidewaysScroll(page, "the board");
  }
  await closePage(page);
});

test("a variant is pinned and unpinned, whatever its name is", options, async () => {
  const page = await openDashboard();
  await showAll(page, "variants");
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
  await page.locator(".skip").focus();
  await page.keyboard.press("Enter");
  await press(page, "Pause"); // the hot lane is the first
  await page.locator("#confirm[open]").waitFor();
  await press(page, "Pause the lane", "Space");
  await announced(page, "The hot lane is paused.");
  await page.locator("#headline", { hasText: "Paused" }).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Resume", "the focus is back on the button");
  await page.keyboard.press("Enter");
  await press(page, "Resume the lane");
  await announced(page, "The hot lane is resumed.");
  await lane(page, "Hot").getByRole("button", { name: "Pause" }).waitFor();
  await press(page, "Cap");
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

/**
 * Opens the dashboard with overviews that `change` has changed, and other frames
 * that changeFrame has.
 */
async function openChanged(change, { changeFrame = (frame) => frame, pageOptions = {} } = {}) {
  const page = await openPage(browser, `${program.url}/ops/`, pageOptions);
  await page.route("**/v1/ops/overview", async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: change(await response.json()) });
  });
  await page.routeWebSocket(/\/v1\/live/, (socket) => {
    const server = socket.connectToServer();
    server.onMessage((message) => {
      const frame = JSON.parse(message);
      if (frame.channel === "ops.overview" && frame.payload) frame.payload = change(frame.payload);
      socket.send(JSON.stringify(frame.channel === "ops.overview" ? frame : changeFrame(frame)));
    });
  });
  await page.getByLabel("API key").fill(program.key);
  await page.keyboard.press("Enter");
  await page.locator("#connection[data-state=live]").waitFor();
  return page;
}

test("several cells are shown, with one that is not available", options, async () => {
  const cell = { own: false, available: true, depth: 0, oldest_seconds: 0, decided_per_second: 0, paused: [], sweep_seconds: 0, behind_seconds: 0 };
  const cells = [{ ...cell, cell: "eu", own: true, depth: 1204, oldest_seconds: 61, decided_per_second: 31.4, paused: ["hot"] }, { ...cell, cell: "us", available: false, sweep_seconds: 90 }];
  const page = await openChanged((overview) => ({ ...overview, cells }));
  const rows = await page.locator("#cells tbody tr").allInnerTexts();
  assert.deepEqual(rows.map((text) => text.replaceAll(/[\u2068\u2069]/g, "").replaceAll(/\s+/g, " ")), ["eu This tenant Paused: hot 1,204 1 min 1 s 31 – –", "us Not available 0 – 0 1 min 30 s –"]);
  await page.locator("#headline", { hasText: "The database of the cell" }).waitFor();
  await assertAccessible(page, "several cells");
  await closePage(page);
  const alone = await openChanged((overview) => overview);
  assert.equal(await alone.locator("#cells").isVisible(), false);
  await closePage(alone);
});

test("variants and failed requests come in the service's order, with what matters first", options, async () => {
  const at = new Date().toISOString();
  const variant = (variant_id, rate_per_second, sold_out) => ({
    variant_id, stock: 10, reserved: sold_out ? 10 : 1, available: sold_out ? 0 : 9, tracked: true, backorder: false, lane: "normal", pinned: false, rate_per_second, sold_out,
  });
  const failed = (cart_id, reason, more = {}) => ({ request_id: `00000000-0000-0000-0000-${cart_id}`, cart_id, variant_id: "a", quantity: 2, reason, failed_at: at, retried_by: null, ...more });
  const page = await openChanged((overview) => ({
    ...overview,
    variants: [{ ...variant("z-hot", 30, false), in_line: 0, set_aside: 4 }, variant("a-warm", 15, false), { ...variant("m-gone", 2, true), in_line: 12, set_aside: 0 }],
    failed: [failed("rejected", "out_of_stock"), failed("left", "cancelled"), failed("broken", "internal_error", { kind: "set" }), failed("again", "internal_error", { retried_by: "new" })],
    sweeps: [{ name: "sweep", last_success_at: null, lag_seconds: 0 }, { name: "recover", last_success_at: null, lag_seconds: 61 }],
  }));
  const texts = (table, cell) => page.locator(`#${table} tbody td:nth-child(${cell}) a`).allInnerTexts();
  assert.deepEqual(await texts("variants", 1), ["m-gone", "z-hot", "a-warm"]);
  assert.deepEqual(await page.locator("#variants .name .tag:visible").allInnerTexts(), ["Sold out", "12 in line", "4 set aside"]);
  const widths = await page.locator("#variants .heat i").evaluateAll((bars) => bars.map((bar) => Math.round(parseFloat(bar.style.width))));
  assert.deepEqual(widths, [7, 100, 50]);
  await page.getByRole("heading", { name: "Failed and rejected requests" }).waitFor();
  assert.deepEqual(await texts("failed", 4), ["broken", "again", "rejected", "left"]);
  const actions = await page.locator("#failed tbody td:last-child").allInnerTexts();
  assert.deepEqual(actions.map((text) => text.trim()), ["Retry", "Retried", "Retry", ""]);
  assert.deepEqual(await page.locator("#failed .tag").allInnerTexts(), ["Failed", "Failed"]);
  assert.equal(await page.getByRole("link", { name: "Retried" }).getAttribute("href"), "#/request/new");
  await assertAccessible(page, "failed and rejected requests");
  await row(page, "failed", "broken").getByRole("button").click();
  await page.locator("#confirm", { hasText: "sets the quantity of the cart broken to 2 units of a" }).waitFor();
  await confirm(page, "Cancel");
  await row(page, "failed", "rejected").getByRole("button").click();
  await page.locator("#confirm", { hasText: "adds 2 units of a to the cart rejected" }).waitFor();
  await confirm(page, "Cancel");
  assert.deepEqual(await page.locator("#sweeps tbody tr").allInnerTexts().then((rows) => rows.map((text) => text.replaceAll(/\s+/g, " "))), ["sweep Nothing is overdue", "recover Overdue for 1 min 1 s"]);
  await closePage(page);
});

test("a failed request is retried from its history, and once only", options, async () => {
  const failed = await program.add("impatient", "sneaker-x");
  assert.equal(failed.status, "failed");
  let made = null;
  const page = await openDashboard();
  await page.route(`**/v1/ops/history?kind=request&id=${failed.request_id}`, async (route) => {
    const response = await route.fetch();
    const found = await response.json();
    await route.fulfill({ response, json: { ...found, now: { ...found.now, retried_by: found.now.retried_by ?? made } } });
  });
  await page.evaluate((id) => (location.hash = `#/request/${id}`), failed.request_id);
  const drawer = page.locator("#history");
  await drawer.getByText("Request failed: sold out").waitFor();
  await drawer.getByRole("button", { name: "Retry" }).click();
  ({ request_id: made } = await program.call("POST", `/v1/requests/${failed.request_id}/retry`, undefined, { headers: { "Idempotency-Key": "first" } }));
  await confirm(page, "Retry the request");
  await page.locator("#confirm-error:not(:empty)").waitFor(); // another operator was first
  assert.equal(await focused(page), "Retry the request", "the button keeps the focus");
  await page.keyboard.press("Escape");
  await drawer.getByRole("button", { name: "Reload" }).click();
  await drawer.getByRole("link", { name: "Show the retry" }).click();
  await drawer.getByText("Retry of").waitFor();
  await closePage(page, /status of 409/);
});

/** The text of the element that has the focus; null for none. */
const focused = (page) => page.evaluate(() => (document.activeElement === document.body ? null : document.activeElement.textContent.trim()));

/** Presses Tab until the focus is on a control of this name, and then Enter. */
async function press(page, name, key = "Enter") {
  for (let tabs = 0; tabs < 60; tabs++) {
    if ((await focused(page)) === name) return page.keyboard.press(key);
    await page.keyboard.press("Tab");
  }
  return assert.fail(`Tab does not reach ${name}`);
}

test("the focus stays beside a control that an action removes", options, async () => {
  const page = await openDashboard();
  const place = () => page.evaluate(() => document.activeElement.closest("section, li, dialog")?.id || document.activeElement.closest("li")?.getAttribute("aria-labelledby"));
  const focusOn = (text, what) => until(`${what} has the focus`, async () => text.test((await focused(page)) ?? ""));

  await page.locator("#failed").getByRole("button", { name: /^Retry/ }).first().focus();
  await page.keyboard.press("Enter");
  await press(page, "Retry the request");
  await announced(page, "The request is retried as");
  await focusOn(/^Retried$/, "the link to the retry");

  // Other overviews come between the service's answer and the end of the call.
  await page.route("**/release", async (route) => {
    const response = await route.fetch();
    await nextOverviews(page, 2);
    await route.fulfill({ response });
  });
  await page.locator("#expiring").getByRole("button", { name: /^Release/ }).first().focus();
  await page.keyboard.press("Enter");
  await press(page, "Release the hold");
  await announced(page, /is released\./);
  await focusOn(/^ended$/, "the link to the reservation");
  assert.equal(await place(), "expiring");

  await lane(page, "Hot").getByRole("button", { name: "Cap" }).focus();
  await page.keyboard.press("Enter");
  await page.keyboard.type("4000");
  await page.keyboard.press("Enter");
  await announced(page, "The hot lane is capped");
  await lane(page, "Hot").getByRole("button", { name: "Remove the cap" }).focus();
  await page.keyboard.press("Enter");
  await press(page, "Remove the cap");
  await announced(page, "The hot lane has no cap.");
  await lane(page, "Hot").getByRole("button", { name: "Remove the cap" }).waitFor({ state: "hidden" });
  await focusOn(/^Pause$/, "the lane's first button");
  assert.equal(await place(), "lane-hot");

  await page.locator("#result-close").focus();
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "content");
  await closePage(page);
});

test("the focus stays beside rows that disappear", options, async () => {
  let failed = true;
  const page = await openChanged((overview) => (failed ? overview : { ...overview, failed: [], expiring: [] }));
  const first = page.locator("#expiring tbody tr").first().getByRole("link").first();
  await first.focus();
  await page.keyboard.press("Enter");
  await page.locator("#history .events").waitFor();
  failed = false;
  await page.locator("#expiring tbody tr").first().waitFor({ state: "detached" });
  await page.keyboard.press("Escape");
  await until("the heading has the focus", async () => (await focused(page)) === "Holds about to expire");
  await closePage(page);
});

test("each action in the drawer moves the focus to its title", options, async () => {
  const failed = await program.add("impatient", "sneaker-x");
  const held = await program.add("patient", "sneaker-y");
  const cases = [
    [`request/${failed.request_id}`, "Retry", "Retry the request", /is retried as/],
    [`reservation/${held.reservation.reservation_id}`, "Release", "Release the hold", /is released/],
    ["variant/tee-m", "Pin", "Pin the variant", /is pinned/],
    ["variant/tee-m", "Unpin", "Unpin the variant", /is unpinned/],
    ["variant/tee-m", "Reload"],
  ];
  const page = await openDashboard();
  const titleHasFocus = () => until("the title has the focus", () => page.evaluate(() => document.activeElement.id === "history-title"));
  for (const [hash, action, question, result] of cases) {
    await page.evaluate((to) => (location.hash = to), `#/${hash}`);
    await page.locator("#history").getByRole("button", { name: action, exact: true }).waitFor();
    await titleHasFocus();
    await press(page, action);
    if (question) {
      await press(page, question);
      await page.locator("#history-result", { hasText: result }).waitFor();
    }
    await titleHasFocus();
    await page.locator("#history").getByRole("button", { name: "Reload" }).waitFor();
    await titleHasFocus();
    await page.keyboard.press("Escape");
    await page.waitForURL(`${program.url}/ops/`);
    assert.notEqual(await focused(page), null, `${action}: the drawer is closed`);
  }
  await closePage(page);
});

test("signing out leaves no data in the page", options, async () => {
  const page = await openDashboard({}, "#/cart/careful");
  await page.locator("#history").getByText("Held", { exact: true }).first().waitFor();
  await page.keyboard.press("Escape");
  await showAll(page, "variants");
  await page.getByRole("button", { name: `Pin ${scriptName} to the hot lane` }).click();
  await confirm(page, "Cancel");
  await page.getByRole("searchbox").fill("careful");
  await page.locator("#outcomes .summary", { hasText: /Last minute/ }).waitFor();
  const empty = await openPage(browser, `${program.url}/ops/`);
  const content = (of) => of.evaluate(() => document.body.textContent.replaceAll(/\s+/g, " "));
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("API key").waitFor();
  assert.equal(await content(page), await content(empty));
  assert.deepEqual(await page.evaluate(() => [...document.querySelectorAll("input")].map((input) => input.value)), ["", "", ""]);
  assert.equal(page.url(), `${program.url}/ops/`);
  await closePage(empty);
  await closePage(page);
});

test("a key in the address of an open page is taken, whatever its characters", options, async () => {
  const page = await openPage(browser, `${program.url}/ops/#key=hf_%zz`);
  await page.getByText("The service does not know this key.").waitFor();
  assert.equal(page.url(), `${program.url}/ops/`);
  await page.evaluate((key) => (location.hash = `#key=${key}`), program.key);
  await page.locator("#connection[data-state=live]").waitFor();
  assert.equal(page.url(), `${program.url}/ops/`);
  const other = await program.makeKey("ops");
  await page.evaluate((key) => (location.hash = `#key=${key}`), other);
  await until("the other key is stored", async () => (await page.evaluate(() => Object.values(sessionStorage))).includes(other));
  assert.equal(page.url(), `${program.url}/ops/`);
  await page.locator("#connection[data-state=live]").waitFor();
  await page.evaluate(() => (location.hash = "#key=hf_wrong"));
  await announced(page, "The service does not know this key.");
  assert.equal(await page.locator("#board").isVisible(), true, "the session with the good key goes on");
  await closePage(page, /status of 401/);
});

test("older events of a history are read when they are asked for", options, async () => {
  const page = await openDashboard(); // a page that still signs in opens the drawer a second time
  const asked = [];
  const events = (from, to) => Array.from({ length: to - from }, (_, i) => ({
    audit_id: from + i, at: new Date().toISOString(), action: "stock.set", target_id: "t", actor: "job", reason: "", correlation_id: "", before: null, after: { stock: from + i },
  }));
  const pages = { "": [events(20, 30), true], 20: [events(10, 20), true], 10: [events(5, 10), false] };
  await page.route("**/v1/ops/history?*", (route) => {
    const before = new URL(route.request().url()).searchParams.get("before") ?? "";
    asked.push(before);
    const [found, more] = pages[before];
    return route.fulfill({ json: { kind: "variant", id: "sneaker-x", now: null, events: found, more } });
  });
  await page.evaluate(() => (location.hash = "#/variant/sneaker-x"));
  const drawer = page.locator("#history");
  await drawer.getByText("The newest 10 events; there are older ones.").waitFor();
  await assertAccessible(page, "a long history");
  await press(page, "Older events");
  await drawer.getByText("The newest 20 events; there are older ones.").waitFor();
  assert.equal(await focused(page), "Older events");
  await page.keyboard.press("Enter");
  await drawer.getByText("All 25 events.").waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.className), "events", "the button is gone, and the focus is beside it");
  assert.equal(await drawer.getByRole("button", { name: "Older events" }).count(), 0);
  assert.deepEqual(asked, ["", "20", "10"]);
  const stocks = await drawer.locator(".events > li p span").allInnerTexts();
  assert.deepEqual(stocks.filter((text) => text.startsWith("stock")), Array.from({ length: 25 }, (_, i) => `stock ${5 + i}`));
  await closePage(page);
});

test("a failed request is retried from the list, and its link leads to the new one", options, async () => {
  let first = null; // what fails later would move the row out of the table
  const page = await openChanged((overview) => ({ ...overview, failed: (first ??= overview.failed) }));
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
  await announced(page, /^The hold of the cart \S+ is released\.$/);
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

test("the reference of the API is short on a phone, and opens what its address names", options, async () => {
  const page = await openPage(browser, `${program.url}/docs`, { viewport: sizes.phone });
  await page.locator("#schema-Problem").waitFor({ state: "attached" });
  const height = await page.evaluate(() => document.documentElement.scrollHeight);
  assert.ok(height < 20_000, `it is ${height} pixels high`);
  await page.locator("#call-add-item summary").first().click();
  assert.deepEqual(await page.evaluate(() => [...document.querySelectorAll(".entry[open]")].map((entry) => entry.id)), ["call-add-item"]);
  await page.waitForURL(/#call-add-item$/);
  await assertNoSidewaysScroll(page, "the reference");
  await page.reload();
  await page.locator("#call-add-item[open]").waitFor();
  const link = page.locator("#call-add-item a[href='#schema-Accepted']").first();
  await link.click();
  await page.locator("#schema-Accepted[open]").waitFor();
  await page.locator("#schema-Accepted summary").click();
  await link.click(); // the address is the same
  await page.locator("#schema-Accepted[open]").waitFor();
  // axe-core walks through the closed bodies for seconds, and checks nothing in them.
  await page.evaluate(() => document.querySelectorAll(".entry:not([open]) > :not(summary)").forEach((body) => body.remove()));
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    await assertAccessible(page, `the reference, ${colorScheme}`);
  }
  await closePage(page);
});

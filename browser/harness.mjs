// Starts the all-in-one and Chromium for the browser tests, and records what a
// page must never do.

import assert from "node:assert/strict";
import { execFile, execFileSync, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { chromium } from "playwright-core";

const root = fileURLToPath(new URL("..", import.meta.url));
const axeSource = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** The name of a variant that a page must show as text. */
export const scriptName = "<script>alert(1)</script>";

/** The sizes that every page must fit. */
export const sizes = { phone: { width: 375, height: 812 }, desktop: { width: 1280, height: 900 } };

/** How long a page has to show something. CI is several times slower than a laptop. */
export const patience = 60_000;

/**
 * Starts `bin/holdfast run` on a free port and a private Postgres. make browser
 * builds it. HOLDFAST_BIN is another program to start.
 *
 * @param {{env?: Record<string, string>, args?: string[]}} [options]
 */
export async function startProgram({ env = {}, args = [] } = {}) {
  const binary = process.env.HOLDFAST_BIN ?? `${root}bin/holdfast`;
  const child = spawn(binary, ["run", "--port", "0", ...args], {
    cwd: root,
    env: { ...process.env, LOG_LEVEL: "warn", ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  process.once("exit", () => child.kill("SIGTERM")); // if the tests end without stop()
  let log = "";
  child.stderr.on("data", (chunk) => (log = (log + chunk).slice(-20_000)));
  const ended = new Promise((resolve) => child.once("exit", (code, signal) => resolve(code ?? signal)));
  const ready = new Promise((resolve, reject) => {
    createInterface({ input: child.stdout }).on("line", (line) => {
      const { url, key, database } = Object.fromEntries(line.split(" ").map((part) => part.split(/=(.*)/)));
      if (database) resolve({ url, key, database });
    });
    child.once("error", reject);
    ended.then((code) => reject(new Error(`holdfast run ended with ${code}:\n${log}`)));
  });
  const { url, key, database } = await within(120_000, "holdfast run is ready", ready).catch((err) => {
    child.kill("SIGKILL");
    throw err;
  });
  return new Program({ binary, child, ended, url, key, database, log: () => log });
}

class Program {
  #binary;
  #child;
  #ended;
  #log;

  constructor({ binary, child, ended, url, key, database, log }) {
    this.#binary = binary;
    this.#child = child;
    this.#ended = ended;
    this.#log = log;
    /** The API's base URL, without a slash at its end. */
    this.url = url.replace(/\/$/, "");
    /** The development key, which has all scopes. */
    this.key = key;
    this.database = database;
  }

  /** The end of what the program logged. */
  get log() {
    return this.#log();
  }

  /**
   * Calls the API and returns the decoded body. A status that is not below 400
   * is an error, unless `status` names it.
   */
  async call(method, path, body, { headers = {}, status, key = this.key } = {}) {
    const response = await fetch(this.url + path, {
      method,
      headers: {
        Authorization: `Bearer ${key}`,
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
        ...headers,
      },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.timeout(patience),
    });
    const text = await response.text();
    const expected = status === undefined ? response.status < 400 : response.status === status;
    assert.ok(expected, `${method} ${path}: ${response.status} ${text}`);
    return text === "" ? null : JSON.parse(text);
  }

  /** Makes a key of the development tenant. */
  makeKey(...scopes) {
    return this.makeKeyOf("dev", ...scopes);
  }

  /** Makes a key of a tenant, and the tenant if there is none of that name. */
  async makeKeyOf(tenant, ...scopes) {
    const env = { ...process.env, DATABASE_URL: this.database };
    const args = ["keys", "create", "--scopes", scopes.join(","), "--tenant", tenant, "--create-tenant"];
    const { stdout } = await promisify(execFile)(this.#binary, args, { env });
    return stdout.trim();
  }

  /** Creates or changes a variant. */
  putStock(variant, fields) {
    return this.call("PUT", `/v1/stocks/${encodeURIComponent(variant)}`, fields);
  }

  /** Adds units to a cart; with wait, returns the finished request. */
  add(cart, variant, quantity = 1, { wait = true } = {}) {
    const headers = { "Idempotency-Key": randomUUID(), ...(wait ? { Prefer: "wait=10" } : {}) };
    return this.call("POST", `/v1/carts/${encodeURIComponent(cart)}/items`, { variant_id: variant, quantity }, { headers });
  }

  /** Stops the program, and its Postgres with it. */
  async stop() {
    this.#child.kill("SIGINT");
    const code = await within(30_000, "holdfast run stops", this.#ended).catch((err) => {
      this.#child.kill("SIGKILL");
      throw err;
    });
    assert.equal(code, 0, `holdfast run ended with ${code}:\n${this.log}`);
  }
}

/** Starts Chromium without a window. Its close() ends it. */
export function startBrowser() {
  const executablePath = process.env.CHROMIUM ?? execFileSync(`${root}browser/chromium.sh`, { encoding: "utf8" }).trim();
  const flags = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
  return chromium.launch({ executablePath, args: process.getuid?.() === 0 ? ["--no-sandbox", ...flags] : flags });
}

/**
 * Opens a page in a context of its own: no storage is shared. The page's
 * `problems` collects console errors, violations of the Content-Security-Policy,
 * exceptions, script dialogs and requests to other origins; a test says to
 * closePage which it expects. `options` are Playwright's, for instance viewport and
 * colorScheme.
 *
 * @returns {Promise<import("playwright-core").Page & {problems: string[]}>}
 */
export async function openPage(browser, url, options = {}) {
  const context = await browser.newContext({ viewport: sizes.desktop, reducedMotion: "reduce", locale: "en-GB", timezoneId: "UTC", ...options });
  context.setDefaultTimeout(patience);
  const page = await context.newPage();
  page.problems = [];
  page.on("console", (message) => {
    if (message.type() === "error" || /Content.Security.Policy/i.test(message.text())) {
      page.problems.push(`console: ${message.text()} (${message.location().url})`);
    }
  });
  page.on("pageerror", (err) => page.problems.push(`exception: ${err.stack ?? err}`));
  page.on("dialog", (dialog) => {
    page.problems.push(`dialog: ${dialog.message()}`);
    dialog.dismiss().catch(() => {});
  });
  page.on("request", (request) => {
    const target = new URL(request.url());
    if (/^http/.test(target.protocol) && target.origin !== new URL(url).origin) page.problems.push(`outside asset: ${target}`);
  });
  await page.goto(url);
  return page;
}

/**
 * Closes the page's context, and fails if the page did what it must not.
 * Problems that match `expected` are allowed. They are looked up only once the page is closed: the browser logs a
 * refused call a moment after the page has dealt with it.
 */
export async function closePage(page, expected = /^\b$/) {
  await page.context().close();
  const problems = page.problems.filter((problem) => !expected.test(problem));
  assert.deepEqual(problems, [], "the page's problems");
}

/**
 * Fails if axe-core finds a violation. The source comes in over the debugger,
 * because the page's Content-Security-Policy stays in force.
 */
export async function assertAccessible(page, name) {
  const session = await page.context().newCDPSession(page);
  await session.send("Runtime.evaluate", { expression: `${axeSource};undefined` });
  await session.detach();
  const violations = await page.evaluate(async () => {
    const result = await window.axe.run(document, { resultTypes: ["violations"], preload: false });
    return result.violations.map((v) => `${v.id}: ${v.help}\n` + v.nodes.map((n) => `  ${n.target}: ${n.failureSummary}`).join("\n"));
  });
  assert.deepEqual(violations, [], `axe-core on ${name}`);
}

/** Fails if the page scrolls sideways. */
export async function assertNoSidewaysScroll(page, name) {
  const [content, view] = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
  assert.ok(content <= view, `${name} is ${content} pixels wide in a window of ${view}`);
}

/** Polls until the check returns something truthy, and returns it. */
export async function until(what, check) {
  const deadline = Date.now() + patience;
  for (;;) {
    const found = await check();
    if (found) return found;
    assert.ok(Date.now() < deadline, `timed out: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

async function within(milliseconds, what, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`timed out: ${what}`)), milliseconds);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

// The parts of the dashboard that need no page: its words, its series, and the
// copy of the chart library.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { byMinute, Series } from "../internal/dashboard/static/js/series.js";
import { about, action, canRetry, chartsBehind, countdown, duration, headline, isolated, list, milliseconds, overdue, rate, visible } from "../internal/dashboard/static/js/words.js";

const calm = { lane: "hot", depth: 0, oldest_seconds: 0, arrivals_per_second: 0, decided_per_second: 0, paused: false, rate_cap: null, slow: null };
const variant = { variant_id: "a", stock: 5, reserved: 5, available: 0, sold_out: true };
const quiet = { lanes: [calm], variants: [], expiring: [], failed: [], sweeps: [], subscriptions: [] };
const spaces = (text) => text.replaceAll("\u00a0", " ");
const unmarked = (text) => text.replaceAll(/[\u2068\u2069]/g, "");
const said = (overview) => headline({ ...quiet, ...overview }).map((s) => unmarked(spaces(`${s.label}: ${s.text}`)));

test("the headline says what is wrong, and else that nothing is", () => {
  assert.deepEqual(said({}), ["Fine: Both lanes keep up."]);
  assert.deepEqual(said({ variants: [{ ...variant, reserved: 4, available: 1, sold_out: false }] }),
    ["Fine: None of the hottest variants is sold out, and both lanes keep up."]);
  assert.deepEqual(said({ variants: [variant] }), ["Sold out: a: all 5 units are reserved.", "Fine: Both lanes keep up."]);
  assert.deepEqual(said({ variants: [{ ...variant, stock: 0 }] })[0], "Sold out: a: no unit is in stock.");
  assert.deepEqual(said({ variants: [{ ...variant, variant_id: "b" }, variant] })[0], "Sold out: a and b.");
  assert.deepEqual(said({ lanes: [{ ...calm, depth: 1204, oldest_seconds: 38.4, slow: "Capped at 5 per second; 31 per second arrive." }] }),
    ["Slow: The hot lane: capped at 5 per second; 31 per second arrive. 1,204 requests wait, the oldest for 38 s."]);
  assert.deepEqual(said({ lanes: [{ ...calm, paused: true, slow: "Paused." }] }), ["Paused: The hot lane: no request is decided."]);
  assert.deepEqual(said({ failed: [{ reason: "internal_error" }, { reason: "out_of_stock" }, { reason: "internal_error", retried_by: "x" }] }),
    ["Failed: 1 request failed with an internal error. You can retry it below."]);
  assert.deepEqual(said({ sweeps: [{ name: "expiry", lag_seconds: 61 }, { name: "purge", lag_seconds: 60 }] }), ["Behind: The sweep expiry is 1 min 1 s behind."]);
  assert.deepEqual(said({ cells: [{ cell: "eu", available: true }, { cell: "us", available: false }] }), ["Not available: The database of the cell us does not respond."]);
  assert.deepEqual(said({ subscriptions: [{ name: "hooks", lag_seconds: 1, failures: 1 }] }), ["Behind: The subscription hooks is 1 s behind and failed 1 time."]);
});

test("a sentence keeps its key while only its figures change", () => {
  const keys = (depth) => headline({ ...quiet, lanes: [{ ...calm, depth, slow: `${depth} wait.` }] }).map((s) => s.key);
  assert.deepEqual(keys(1), keys(2));
});

test("numbers and durations", () => {
  assert.deepEqual([0, 0.44, 9.96, 31.4, 1204].map(rate), ["0", "0.4", "10", "31", "1,204"]);
  assert.deepEqual([0, 0.04, 0.42, 59.9, 60, 61, 3661, 90_000].map(duration).map(spaces), ["0 s", "0.1 s", "0.4 s", "59 s", "1 min", "1 min 1 s", "1 h 1 min", "1 d 1 h"]);
  assert.deepEqual([-1, 0.2, 61, 3661].map(countdown), ["0:00", "0:01", "1:01", "1:01:01"]);
  assert.deepEqual([0.04, 5.25, 312.6, 1500].map(milliseconds), ["0 ms", "5.3 ms", "313 ms", "1.5 s"]);
  assert.deepEqual([[], ["a"], ["a", "b", "c", "d"], ["a", "b", "c", "d", "e"]].map((names) => list(names)), ["", "a", "a, b, c and d", "a, b, c and 2 more"]);
});

test("an event of a history says what happened and why", () => {
  assert.equal(action({ action: "reservation.released", reason: "operator" }), "Released: by an operator");
  assert.equal(action({ action: "request.failed", after: { reason: "out_of_stock" } }), "Request failed: sold out");
  assert.equal(action({ action: "a.new.one" }), "a.new.one");
  const was = (event) => unmarked(about(event));
  assert.equal(was({ before: null, after: { quantity: 2, resource_key: "poster", holder_id: "fan", status: "released" } }), "2 × poster for cart fan");
  assert.equal(was({ before: { quantity: 3, variant_id: "a", cart_id: "c" }, after: null }), "3 × a for cart c");
  assert.equal(was({ before: null, after: { variant_id: "a", stock: 3000, max_per_cart: null, tracked: true } }), "stock 3,000, tracked true");
  assert.equal(about({ before: { stock: 3, lane: "auto" }, after: { stock: 2, lane: "auto" } }), "stock 3 → 2");
});

test("a request is retried once, and not if its buyer cancelled it", () => {
  assert.equal(canRetry({ reason: "internal_error", retried_by: null }), true);
  assert.equal(canRetry({ reason: "cancelled" }), false);
  assert.equal(canRetry({ reason: "internal_error", retried_by: "x" }), false);
});

test("a sweep says how far it is behind", () => {
  assert.deepEqual([0, 0.4, 61].map(overdue).map(spaces), ["Nothing is overdue", "Overdue for 0.4 s", "Overdue for 1 min 1 s"]);
});

test("the charts say why they lack outcomes", () => {
  const feed = (lag_seconds) => ({ name: "projections", lag_seconds });
  assert.equal(chartsBehind([feed(60)]), "");
  assert.equal(spaces(chartsBehind([{ name: "hooks" }, feed(61)])), "Not up to date: the projections are 1 min 1 s behind.");
  assert.equal(chartsBehind([{ name: "hooks" }]), "Not loaded: no worker runs the projections.");
  assert.equal(chartsBehind(Array.from({ length: 50 }, (_, i) => ({ name: `hook-${i}` }))), "", "the list may lack it");
});

test("what a reader does not see of an id is written out, and an id is isolated", () => {
  assert.equal(visible("tee-m"), "tee-m");
  assert.equal(visible("große Größe שלום ½ 👟"), "große Größe שלום ½ 👟");
  for (const code of ["202E", "202A", "2066", "2069", "200B", "200D", "200F", "FEFF", "2060", "00AD", "061C", "034F", "3164", "FE0F", "E0041", "00A0", "2003", "3000", "2028", "0009", "0085"]) {
    assert.equal(visible(`a${String.fromCodePoint(parseInt(code, 16))}b`), `a[U+${code}]b`);
  }
  assert.equal(isolated("a\u2069b"), "\u2068a[U+2069]b\u2069");
  assert.match(headline({ ...quiet, variants: [{ ...variant, variant_id: "\u202Etsop" }] })[0].text, /^\u2068\[U\+202E\]tsop\u2069: all 5/);
  assert.match(about({ before: null, after: { quantity: 1, variant_id: "\u200Ba", cart_id: "c" } }), /^1 × \u2068\[U\+200B\]a\u2069 for cart \u2068c\u2069$/);
});

test("a series merges deltas into its snapshot and drops what is old", () => {
  const at = (second) => new Date(second * 1000).toISOString();
  const series = new Series();
  const begin = 1_800_000_000;
  series.take("snapshot", { bucket_seconds: 5, buckets: [{ at: at(begin), held: 1 }, { at: at(begin + 5), held: 2 }] });
  series.take("delta", { bucket_seconds: 5, buckets: [{ at: at(begin + 5), held: 3 }, { at: at(begin + 10), held: 4 }] });
  const held = (now) => series.window(now * 1000).filter(([, b]) => b).map(([, b]) => b.held);
  assert.deepEqual(held(begin + 14), [1, 3], "the bucket of the present is not complete");
  assert.deepEqual(held(begin + 15), [1, 3, 4]);
  assert.equal(series.window((begin + 15) * 1000).length, 180);
  assert.deepEqual(held(begin + 900 + 5), [3, 4]);
  assert.deepEqual(held(begin + 15), [3, 4], "it forgot the oldest");
  series.take("rebuild", { bucket_seconds: 5, buckets: [] });
  assert.deepEqual(held(begin + 15), []);
  series.take("snapshot", null);
  assert.deepEqual(held(begin + 15), []);
  assert.deepEqual(byMinute([[begin, { held: 1 }], [begin + 5, undefined], [begin + 60, { held: 2 }]]), [[begin + 60, [{ held: 2 }]], [begin, [{ held: 1 }]]]);
});

test("the chart library is a copy of its npm package", () => {
  execFileSync(process.execPath, [fileURLToPath(new URL("vendor.mjs", import.meta.url)), "--check"]);
});

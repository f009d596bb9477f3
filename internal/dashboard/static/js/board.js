// The board: everything that the overview says, kept up to date.

import { byId, h, keepFocus, reconcile, setText, show } from "./dom.js";
import { now } from "./clock.js";
import { drawLanes } from "./lanes.js";
import { changing, historyLink, Table } from "./tables.js";
import { canRetry, clockTime, count, countdown, duration, headline, isolated, list, overdue, rate, reason, visible } from "./words.js";

export class Board {
  #actions;
  #tables;
  #said = "";

  constructor(actions) {
    this.#actions = actions;
    this.#tables = {
      variants: this.#variants(),
      failed: this.#failed(),
      expiring: this.#expiring(),
      sweeps: sweeps(),
      subscriptions: subscriptions(),
      cells: cells(),
    };
  }

  /** Removes all that the board shows. */
  close() {
    reconcile(byId("headline"), [], (s) => s.key, sentence);
    drawLanes(byId("lanes"), [], this.#actions);
    setText(byId("changes"), "");
    for (const name of Object.keys(this.#tables)) byId(name).replaceChildren();
  }

  /** Shows an overview. */
  show(overview) {
    keepFocus(() => this.#show(overview));
  }

  #show(overview) {
    const sentences = headline(overview);
    reconcile(byId("headline"), sentences, (s) => s.key, sentence);
    this.#announce(sentences);
    drawLanes(byId("lanes"), overview.lanes, this.#actions);
    const most = Math.max(1, ...overview.variants.map((v) => v.rate_per_second));
    const variants = overview.variants.map((v) => ({ ...v, heat: v.rate_per_second / most }));
    for (const [name, table] of Object.entries(this.#tables)) table.show(name === "variants" ? variants : overview[name] ?? []);
    show(byId("cells"), overview.cells !== undefined);
  }

  /** Tells a screen reader what changed, but not each new figure. */
  #announce(sentences) {
    const keys = sentences.map((s) => s.key).join("; ");
    if (keys === this.#said) return;
    this.#said = keys;
    setText(byId("changes"), sentences.map((s) => `${s.label}: ${s.text}`).join(" "));
  }

  #variants() {
    return new Table(byId("variants"), {
      id: "variants",
      title: "Hottest variants",
      empty: "There is no variant yet.",
      columns: [
        { name: "Variant" }, { name: "Lane" }, { name: "Taken" },
        { name: "Stock", number: true }, { name: "Reserved", number: true }, { name: "Available", number: true },
        { name: "Requests/s", number: true }, { name: "Action", action: true },
      ],
      most: 10,
      key: (v) => v.variant_id,
      order: (variants) => withFirst(variants, (v) => v.sold_out),
      row: (v) => variantRow(v, this.#actions),
    });
  }

  #failed() {
    return new Table(byId("failed"), {
      id: "failed",
      title: "Failed and rejected requests",
      empty: "No request failed or was rejected.",
      columns: [{ name: "Failed at", time: true }, { name: "Reason" }, { name: "Variant" }, { name: "Cart" }, { name: "Units", number: true }, { name: "Action", action: true }],
      most: 8,
      key: (r) => r.request_id,
      order: (requests) => withFirst(requests, isBroken),
      row: (r) => failedRow(r, this.#actions),
    });
  }

  #expiring() {
    return new Table(byId("expiring"), {
      id: "expiring",
      title: "Holds about to expire",
      empty: "Nothing is held.",
      columns: [{ name: "Expires in", time: true }, { name: "Variant" }, { name: "Cart" }, { name: "Units", number: true }, { name: "Action", action: true }],
      most: 8,
      key: (r) => r.reservation_id,
      row: (r) => expiringRow(r, this.#actions),
    });
  }
}

function sentence() {
  const label = h("span", { class: "tag" });
  const text = h("span");
  const update = (s) => {
    setText(label, s.label);
    label.className = `tag ${s.kind}`;
    setText(text, s.text);
  };
  return { node: h("li", {}, label, text), update };
}

/** The items that match first, and both parts in the service's order. */
function withFirst(items, matches) {
  return [...items.filter(matches), ...items.filter((item) => !matches(item))];
}

/** Whether a request failed, and was not rejected for a reason of the sale. */
function isBroken(request) {
  return request.reason === "internal_error";
}

function variantRow(first, actions) {
  let v = first;
  const soldOut = h("span", { class: "tag notice" }, "Sold out");
  const backorder = h("span", { class: "tag" }, "Backorder");
  const [inLine, setAside] = [h("span", { class: "tag" }), h("span", { class: "tag" })];
  const lane = changing();
  const pinned = h("span", { class: "tag" }, "Pinned");
  const taken = h("i");
  const bar = h("span", { class: "bar", "aria-hidden": "true" }, taken);
  const [stock, reserved, available, perSecond] = [changing(), changing(), changing("b"), changing()];
  const heat = h("i");
  const demand = h("span", { class: "demand" }, h("span", { class: "heat", "aria-hidden": "true" }, heat), perSecond.node);
  const button = h("button", { type: "button", click: () => (v.pinned ? actions.unpin(v.variant_id) : actions.pin(v.variant_id)) });
  const update = (next, node) => {
    v = next;
    node.classList.toggle("sold-out", v.sold_out);
    show(soldOut, v.sold_out);
    show(backorder, v.backorder);
    show(inLine, v.in_line > 0);
    setText(inLine, `${v.in_line >= 1000 ? "1,000 or more" : count(v.in_line ?? 0)} in line`);
    show(setAside, v.set_aside > 0);
    setText(setAside, `${count(v.set_aside ?? 0)} set aside`);
    lane.set(v.lane);
    show(pinned, v.pinned);
    show(bar, v.tracked);
    taken.style.width = `${v.stock > 0 ? Math.min(100, (v.reserved / v.stock) * 100) : 100}%`;
    stock.set(v.tracked ? count(v.stock) : "not tracked");
    reserved.set(v.tracked ? count(v.reserved) : "–");
    available.set(v.tracked ? count(v.available) : "–");
    perSecond.set(rate(v.rate_per_second));
    heat.style.width = `${Math.min(100, v.heat * 100)}%`;
    setText(button, v.pinned ? "Unpin" : "Pin");
    button.setAttribute("aria-label", v.pinned ? `Unpin ${visible(v.variant_id)}` : `Pin ${visible(v.variant_id)} to the hot lane`);
  };
  const cells = [
    h("span", { class: "name" }, historyLink("variant", v.variant_id), soldOut, backorder, inLine, setAside),
    h("span", { class: "name" }, lane.node, pinned),
    bar, stock.node, reserved.node, available.node, demand, button,
  ];
  return { cells, update };
}

function failedRow(first, actions) {
  let r = first;
  let made = null;
  const retry = async () => {
    made = await actions.retry(r);
    keepFocus(() => update(r));
  };
  const button = h("button", { type: "button", "aria-label": `Retry the request of cart ${visible(r.cart_id)} for ${r.kind === "lines" ? "several lines" : visible(r.variant_id)}`, click: retry }, "Retry");
  const link = h("span");
  const update = (next) => {
    r = { ...next, retried_by: next.retried_by ?? made };
    if (r.retried_by && link.childElementCount === 0) link.append(historyLink("request", r.retried_by, "Retried"));
    show(button, canRetry(r));
  };
  const cells = [
    historyLink("request", r.request_id, clockTime(r.failed_at)),
    h("span", { class: "name" }, isBroken(r) && h("span", { class: "tag trouble" }, "Failed"), h("span", { class: isBroken(r) ? "bad" : null }, reason(r.reason))),
    r.kind === "lines" ? h("span", {}, "several lines") : historyLink("variant", r.variant_id), historyLink("cart", r.cart_id), count(r.quantity),
    h("span", {}, button, link),
  ];
  return { cells, update };
}

function expiringRow(first, actions) {
  let r = first;
  const left = h("b", { "data-until": r.expires_at });
  const button = h("button", { type: "button", "aria-label": `Release the hold of cart ${visible(r.cart_id)} on ${visible(r.variant_id)}`, click: () => actions.release(r) }, "Release");
  const update = (next, node) => {
    r = next;
    node.classList.toggle("gone", r.gone === true);
    left.setAttribute("data-until", r.gone ? "" : r.expires_at);
    setText(left, r.gone ? "ended" : timeLeft(r.expires_at));
    button.disabled = r.gone === true;
  };
  const time = h("a", { href: `#/reservation/${encodeURIComponent(r.reservation_id)}`, class: "id", title: `Reservation ${r.reservation_id}` }, left);
  const cells = [time, historyLink("variant", r.variant_id), historyLink("cart", r.cart_id), count(r.quantity), button];
  return { cells, update };
}

function timeLeft(at) {
  const seconds = (Date.parse(at) - now()) / 1000;
  return seconds > 0 ? countdown(seconds) : "due";
}

/** Moves the countdowns on. */
export function tick() {
  for (const left of document.querySelectorAll("[data-until]")) {
    const at = left.getAttribute("data-until");
    if (at) setText(left, timeLeft(at));
  }
}

function sweeps() {
  return new Table(byId("sweeps"), {
    id: "sweeps",
    title: "Sweeps",
    empty: "No sweep is configured.",
    columns: [{ name: "Sweep" }, { name: "Behind" }],
    key: (s) => s.name,
    row: (s) => {
      const lag = changing();
      const update = (next) => {
        lag.set(overdue(next.lag_seconds));
        lag.node.className = next.lag_seconds > 60 ? "bad" : "";
      };
      return { cells: [s.name, lag.node], update };
    },
  });
}

function cells() {
  return new Table(byId("cells"), {
    id: "cells",
    title: "Cells",
    empty: "There is one cell.",
    columns: [{ name: "Cell" }, { name: "Queued", number: true }, { name: "Oldest waits", number: true }, { name: "Decided/s", number: true }, { name: "Sweeps behind", number: true }, { name: "Readers behind", number: true }],
    key: (c) => c.cell,
    row: (c) => {
      const own = h("span", { class: "tag" }, "This tenant");
      const [down, paused] = [h("span", { class: "tag trouble" }, "Not available"), h("span", { class: "tag trouble" })];
      const [depth, oldest, decided, sweep, behind] = [changing(), changing(), changing(), changing(), changing()];
      const update = (next) => {
        show(own, next.own);
        show(down, !next.available);
        show(paused, next.paused.length > 0);
        setText(paused, `Paused: ${list(next.paused)}`);
        depth.set(count(next.depth));
        oldest.set(next.depth === 0 ? "–" : duration(next.oldest_seconds));
        decided.set(rate(next.decided_per_second));
        sweep.set(next.sweep_seconds > 0 ? duration(next.sweep_seconds) : "–");
        sweep.node.className = next.sweep_seconds > 60 ? "bad" : "";
        behind.set(next.behind_seconds > 0 ? duration(next.behind_seconds) : "–");
        behind.node.className = next.behind_seconds > 60 ? "bad" : "";
      };
      return { cells: [h("span", { class: "name" }, isolated(c.cell), own, down, paused), depth.node, oldest.node, decided.node, sweep.node, behind.node], update };
    },
  });
}

function subscriptions() {
  return new Table(byId("subscriptions"), {
    id: "subscriptions",
    title: "Subscriptions",
    empty: "Nothing subscribes to the audit log.",
    columns: [{ name: "Subscription" }, { name: "Events to read", number: true }, { name: "Behind", number: true }, { name: "Failures", number: true }, { name: "Last error" }],
    key: (s) => s.name,
    row: (s) => {
      const [lag, seconds, failures, error] = [changing(), changing(), changing(), changing()];
      const update = (next) => {
        lag.set(count(next.lag));
        seconds.set(duration(next.lag_seconds));
        seconds.node.className = next.lag_seconds > 60 ? "bad" : "";
        failures.set(count(next.failures));
        failures.node.className = next.failures > 0 ? "bad" : "";
        error.set(next.last_error ? isolated(next.last_error) : "–");
      };
      return { cells: [isolated(s.name), lag.node, seconds.node, failures.node, error.node], update };
    },
  });
}

// What the page says: numbers, durations, reasons and sentences. It has no
// effect on the page, so its tests need no browser.

const whole = new Intl.NumberFormat("en");
const noBreak = "\u00a0";
const tenths = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

export function count(n) {
  return n == null ? "–" : whole.format(n);
}

/** A number per second: 0.4, 7.3, 31, 1,204. */
export function rate(n) {
  if (n == null) return "–";
  return n < 10 ? tenths.format(n) : whole.format(Math.round(n));
}

/** A number of things: "1 unit", "3 units". */
export function counted(n, one, many = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : many}`;
}

// Characters that a reader does not see: those of Unicode that format text, such
// as the marks that turn its direction, and all spaces but the usual one.
const unseen = /[\p{Cf}\p{Cc}\p{Default_Ignorable_Code_Point}]|[^\S ]/gu;

/** A text that a caller chose, with the numbers of such characters: "a[U+202E]". */
export function visible(text) {
  return String(text).replaceAll(unseen, (c) => `[U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}]`);
}

/**
 * An id for a sentence. Its direction does not change that of the sentence,
 * because dom.js puts what is between these two marks into a <bdi>.
 */
export function isolated(id) {
  return `\u2068${visible(id)}\u2069`;
}

/** A duration in its two largest units, without a second one that is 0; 0.4 s. */
export function duration(seconds) {
  if (seconds == null) return "–";
  if (seconds < 1) return `${seconds <= 0 ? 0 : tenths.format(Math.max(0.1, seconds))}${noBreak}s`;
  const s = Math.floor(seconds);
  if (s < 60) return `${s}${noBreak}s`;
  if (s < 3600) return both(Math.floor(s / 60), "min", s % 60, "s");
  if (s < 86_400) return both(Math.floor(s / 3600), "h", Math.floor((s % 3600) / 60), "min");
  return both(Math.floor(s / 86_400), "d", Math.floor((s % 86_400) / 3600), "h");
}

function both(n, unit, rest, smaller) {
  return rest === 0 ? `${n}${noBreak}${unit}` : `${n}${noBreak}${unit}${noBreak}${rest}${noBreak}${smaller}`;
}

/** The time until a deadline: 14:05, 1:02:09. */
export function countdown(seconds) {
  const s = Math.max(0, Math.ceil(seconds));
  const two = (n) => String(n).padStart(2, "0");
  const minutes = `${Math.floor(s / 60) % 60}`;
  return s < 3600 ? `${minutes}:${two(s % 60)}` : `${Math.floor(s / 3600)}:${minutes.padStart(2, "0")}:${two(s % 60)}`;
}

export function milliseconds(n) {
  if (n == null) return "–";
  return n < 1000 ? `${n < 10 ? tenths.format(n) : Math.round(n)} ms` : `${tenths.format(n / 1000)} s`;
}

export function clockTime(at, options = {}) {
  return new Date(at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false, ...options });
}

export function dateTime(at) {
  return new Date(at).toLocaleString([], { dateStyle: "medium", timeStyle: "medium", hour12: false });
}

/** The end of a UUID, which tells ids made at about the same time apart. */
export function shortId(id) {
  return id.length > 20 ? `…${id.slice(-8)}` : id;
}

const reasons = {
  out_of_stock: "Sold out",
  unknown_variant: "No such variant",
  not_on_sale: "Not on sale at that time",
  quantity_not_allowed: "Not sold in that quantity",
  limit_exceeded: "More than a cart or a customer may hold",
  unknown_kit: "No such kit",
  unknown_allotment: "No such allotment, or it has ended",
  cancelled: "Cancelled by the buyer",
  expired_in_queue: "Waited too long in the queue",
  internal_error: "Internal error",
};

/** Why a request failed. */
export function reason(code) {
  return reasons[code] ?? code ?? "–";
}

/** Whether an operator may retry the failed request. */
export function canRetry(request) {
  return request.reason !== "cancelled" && !request.retried_by;
}

const releases = {
  cart_removed: "removed from the cart",
  payment_failed: "the payment failed",
  abandoned: "the cart was abandoned",
  replaced: "replaced by another hold",
  operator: "by an operator",
  ttl: "its time ran out",
};

/** Why a reservation was released. */
export function releaseReason(code) {
  return releases[code] ?? code;
}

const actions = {
  "reservation.held": "Held",
  "reservation.extended": "Extended",
  "reservation.resized": "Quantity changed",
  "reservation.moved": "Moved to another cart",
  "reservation.returned": "Returned",
  "reservation.committed": "Committed",
  "reservation.released": "Released",
  "reservation.expired": "Expired",
  "request.failed": "Request failed",
  "request.queued": "Request accepted",
  "request.retried": "Request retried",
  "stock.set": "Stock set",
  "stock.adjusted": "Stock adjusted",
  "lane.controlled": "Lane controlled",
  "lane.promoted": "Moved to the hot lane",
  "lane.demoted": "Moved to the normal lane",
  "lane.diverted": "Diverted",
  "lane.restored": "Diversion ended",
  "lane.pinned": "Pinned to the hot lane",
  "lane.unpinned": "Unpinned",
};

/** What an event of a history did. */
export function action(event) {
  const text = actions[event.action] ?? event.action;
  const why = event.action === "request.failed" ? reason(event.after?.reason ?? event.reason) : releaseReason(event.reason);
  return why ? `${text}: ${lowerFirst(why)}` : text;
}

/** What an event of a history was about: units of a variant, or changed fields. */
export function about(event) {
  const { before, after } = event;
  const is = after ?? before ?? {};
  if (is.quantity == null) return changes(before ?? {}, after ?? {});
  const until = is.status === "held" && is.expires_at ? ` until ${clockTime(is.expires_at)}` : "";
  return `${count(is.quantity)} × ${is.variant_id === "/" ? "several lines" : isolated(is.variant_id ?? is.resource_key)} for cart ${isolated(is.cart_id ?? is.holder_id)}${until}`;
}

/** The fields whose values differ; of something new those that are set. */
function changes(before, after) {
  const value = (v) => (typeof v === "number" ? count(v) : isolated(v));
  return Object.keys(after)
    .filter((name) => !name.endsWith("_id") && (before[name] ?? null) !== after[name] && typeof after[name] !== "object")
    .map((name) => `${name.replaceAll("_", " ")} ${before[name] == null ? "" : `${value(before[name])} → `}${value(after[name])}`)
    .join(", ");
}

export function laneName(lane) {
  return `${lane[0].toUpperCase()}${lane.slice(1)} lane`;
}

function lowerFirst(text) {
  return text === "" ? "" : text[0].toLowerCase() + text.slice(1);
}

/** Names in a sentence: "a", "a and b", "a, b and 4 more". */
export function list(names, most = 4) {
  const shown = names.length > most ? [...names.slice(0, most - 1), `${names.length - most + 1} more`] : names;
  return shown.length < 2 ? shown.join("") : `${shown.slice(0, -1).join(", ")} and ${shown.at(-1)}`;
}

const lagSecondsMax = 60;
const subscriptionsMax = 50; // of an overview

/**
 * What an operator has to know, as sentences. Each has a kind (trouble, notice
 * or fine), a label, a text, and a key that stays the same while only its
 * figures change.
 */
export function headline(overview) {
  const said = [];
  const soldOut = overview.variants.filter((v) => v.sold_out);
  if (soldOut.length > 0) {
    const names = soldOut.map((v) => v.variant_id).sort();
    const text = soldOut.length === 1 ? `${isolated(names[0])}: ${taken(soldOut[0])}.` : `${list(names.map(isolated))}.`;
    said.push({ kind: "notice", label: "Sold out", text, key: `sold out ${names}` });
  }
  for (const lane of overview.lanes) {
    if (!lane.slow) continue;
    const label = lane.paused ? "Paused" : "Slow";
    const why = lane.paused ? "no request is decided." : lowerFirst(lane.slow);
    said.push({ kind: "trouble", label, text: `The ${lane.lane} lane: ${why}${waiting(lane)}`, key: `${lane.lane} ${label} ${lane.rate_cap}` });
  }
  const broken = overview.failed.filter((r) => r.reason === "internal_error" && !r.retried_by).length;
  if (broken > 0) {
    const text = `${counted(broken, "request")} failed with an internal error. You can retry ${broken === 1 ? "it" : "them"} below.`;
    said.push({ kind: "trouble", label: "Failed", text, key: `failed ${broken}` });
  }
  for (const sweep of overview.sweeps.filter((s) => s.lag_seconds > lagSecondsMax)) {
    said.push({ kind: "trouble", label: "Behind", text: `The sweep ${sweep.name} is ${duration(sweep.lag_seconds)} behind.`, key: `sweep ${sweep.name}` });
  }
  for (const s of overview.subscriptions.filter((s) => s.lag_seconds > lagSecondsMax || s.failures > 0)) {
    const text = `The subscription ${isolated(s.name)} is ${duration(s.lag_seconds)} behind${s.failures > 0 ? ` and failed ${counted(s.failures, "time")}` : ""}.`;
    said.push({ kind: "trouble", label: "Behind", text, key: `subscription ${s.name}` });
  }
  for (const { cell } of overview.cells?.filter((c) => !c.available) ?? []) {
    said.push({ kind: "trouble", label: "Not available", text: `The database of the cell ${isolated(cell)} does not respond.`, key: `cell ${cell}` });
  }
  if (!said.some((s) => s.kind === "trouble")) {
    said.push({ kind: "fine", label: "Fine", text: `${supply(overview.variants)} keep up.`, key: "fine" });
  }
  return said;
}

/** The overview has the hottest variants only, so nothing is said of the others. */
function supply(variants) {
  const known = variants.length > 0 && !variants.some((v) => v.sold_out);
  return known ? "None of the hottest variants is sold out, and both lanes" : "Both lanes";
}

/** Why the charts may lack what happened; "" if they have all of it. */
export function chartsBehind(subscriptions) {
  const feed = subscriptions.find((s) => s.name === "projections");
  if (!feed) return subscriptions.length < subscriptionsMax ? "Not loaded: no worker runs the projections." : "";
  return feed.lag_seconds > lagSecondsMax ? `Not up to date: the projections are ${duration(feed.lag_seconds)} behind.` : "";
}

/** How far a sweep is behind. */
export function overdue(seconds) {
  return seconds > 0 ? `Overdue for ${duration(seconds)}` : "Nothing is overdue";
}

function taken(variant) {
  if (variant.stock === 0) return "no unit is in stock";
  return variant.stock === 1 ? "its only unit is reserved" : `all ${count(variant.stock)} units are reserved`;
}

function waiting(lane) {
  if (lane.depth === 0) return "";
  return ` ${counted(lane.depth, "request")} wait${lane.depth === 1 ? "s" : ""}, the oldest for ${duration(lane.oldest_seconds)}.`;
}

/** The state of a lane in a word, with its kind. */
export function laneState(lane) {
  if (lane.paused) return { kind: "trouble", label: "Paused" };
  if (lane.slow) return { kind: "trouble", label: "Slow" };
  if (lane.depth === 0 && !lane.arrivals_per_second) return { kind: "fine", label: "Idle" };
  return { kind: "fine", label: "Keeps up" };
}

/** What a lane's figures mean. */
export function laneNote(lane) {
  if (lane.slow) return lane.slow;
  if (lane.rate_cap != null) return `Capped at ${count(lane.rate_cap)} per second, which is enough now.`;
  return "Requests are decided as fast as they arrive.";
}

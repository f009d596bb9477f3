// The drawer: search results, and the history of a cart, request, variant or
// reservation. Each has a URL of its own.

import { byId, h, rememberFocus, setText } from "./dom.js";
import { historyLink } from "./tables.js";
import { about, action, canRetry, count, dateTime, isolated, reason, releaseReason, shortId } from "./words.js";

const drawer = byId("history");
const body = byId("history-body");
const kinds = ["cart", "request", "variant", "reservation"];
const titles = { cart: "Cart", request: "Request", variant: "Variant", reservation: "Reservation" };

export class History {
  #api;
  #actions;
  #shown = 0;
  #events = new AbortController();
  #restoreFocus = () => {};

  constructor(api, actions) {
    this.#api = api;
    this.#actions = actions;
    const { signal } = this.#events;
    addEventListener("hashchange", () => this.open(), { signal });
    drawer.addEventListener("close", () => this.#closed(), { signal });
    byId("history-close").addEventListener("click", () => drawer.close(), { signal });
    byId("search").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#search(byId("search-for").value.trim());
    }, { signal });
  }

  /** Closes the drawer and removes all that it shows. */
  close() {
    this.#shown++;
    this.#events.abort();
    drawer.close();
    for (const id of ["history-title", "history-result"]) setText(byId(id), "");
    body.replaceChildren();
    byId("search-for").value = "";
  }

  /** Shows what the URL's fragment names. */
  open() {
    const [, kind, id] = /^#\/([a-z]+)\/(.+)$/.exec(location.hash) ?? [];
    const name = id && decode(id);
    if (kind === "search" && name) this.#show(`Results for “${isolated(name)}”`, () => this.#results(name));
    else if (kinds.includes(kind) && name) this.#show(`${titles[kind]} ${isolated(name)}`, () => this.#history(kind, name));
    else if (drawer.open) drawer.close();
  }

  #search(text) {
    if (text === "") return;
    const hash = `#/search/${encodeURIComponent(text)}`;
    if (location.hash === hash) this.open();
    else location.hash = hash;
  }

  #closed() {
    this.#shown++;
    this.#restoreFocus();
    if (location.hash !== "") history.pushState(null, "", location.pathname);
  }

  async #show(title, load) {
    const shown = ++this.#shown;
    setText(byId("history-title"), title);
    setText(byId("history-result"), "");
    if (!drawer.open) {
      this.#restoreFocus = rememberFocus();
      drawer.showModal();
    }
    byId("history-title").focus(); // the rest of the drawer is replaced
    body.replaceChildren(h("p", { class: "note" }, "Loading…"));
    drawer.scrollTop = 0;
    try {
      const content = await load();
      if (shown === this.#shown) body.replaceChildren(...content);
    } catch (problem) {
      if (shown === this.#shown) body.replaceChildren(h("p", { class: "error", role: "alert" }, problem.message));
    }
  }

  async #results(text) {
    const { items } = await this.#api.get(`/v1/ops/search?q=${encodeURIComponent(text)}`);
    if (items.length === 0) return [h("p", { class: "empty" }, "Nothing has this id, and no variant's id begins with it.")];
    if (items.length === 1) {
      history.replaceState(null, "", `#/${items[0].kind}/${encodeURIComponent(items[0].id)}`);
      queueMicrotask(() => this.open());
      return [];
    }
    return [h("ul", { class: "results" }, ...items.map((item) =>
      h("li", {}, h("span", { class: "tag" }, titles[item.kind] ?? item.kind), " ", historyLink(item.kind, item.id), " ", h("span", { class: "note" }, isolated(item.summary)))))];
  }

  async #history(kind, id) {
    const path = `/v1/ops/history?kind=${kind}&id=${encodeURIComponent(id)}`;
    const found = await this.#api.get(path);
    const again = () => this.open();
    const buttons = [...this.#buttons(kind, id, found.now ?? {}), h("button", { type: "button", click: again }, "Reload")];
    return [
      h("div", { class: "buttons" }, ...buttons),
      h("h3", {}, "Now"),
      state(found.now),
      h("h3", {}, "History"),
      ...(found.events.length === 0 ? [h("p", { class: "empty" }, "Nothing is recorded.")] : this.#timeline(path, id, found)),
    ];
  }

  /** The events, and a button for the older ones while there are any. */
  #timeline(path, id, found) {
    const list = h("ol", { class: "events", tabindex: "-1", "aria-label": "Events, oldest first" }, ...found.events.map((event) => entry(event, id)));
    if (!found.more) return [list];
    let first = found.events[0].audit_id;
    const newest = () => `The newest ${count(list.childElementCount)} events; there are older ones.`;
    const note = h("span", { role: "status" }, newest());
    const error = h("span", { class: "error", role: "alert" });
    const older = async () => {
      setText(error, "");
      const asked = first;
      try {
        const { events, more } = await this.#api.get(`${path}&before=${asked}`);
        if (asked !== first) return; // a second click
        first = events[0]?.audit_id ?? first;
        list.prepend(...events.map((event) => entry(event, id)));
        setText(note, more ? newest() : `All ${count(list.childElementCount)} events.`);
        if (more) return;
        if (document.activeElement === button) list.focus();
        button.hidden = true;
      } catch (problem) {
        setText(error, problem.message);
      }
    };
    const button = h("button", { type: "button", click: older }, "Older events");
    return [h("p", { class: "note older" }, note, button, error), list];
  }

  /** The actions that the present state allows. */
  #buttons(kind, id, is) {
    const button = (text, act) => h("button", {
      type: "button",
      click: async () => {
        if (await act()) await this.#reload();
      },
    }, text);
    if (kind === "request" && is.retried_by) return [historyLink("request", is.retried_by, "Show the retry")];
    if (kind === "request" && is.status === "failed" && canRetry(is)) return [button("Retry", () => this.#actions.retry({ ...is, request_id: id }))];
    if (kind === "reservation" && is.status === "held") return [button("Release", () => this.#actions.release({ ...is, reservation_id: id }))];
    if (kind === "variant") {
      return [is.pinned ?? is.lane === "hot" ? button("Unpin", () => this.#actions.unpin(id)) : button("Pin", () => this.#actions.pin(id))];
    }
    return [];
  }

  /** Reads the history again, and keeps the announcement of what was done. */
  async #reload() {
    const said = [...byId("history-result").childNodes];
    this.open();
    byId("history-result").replaceChildren(...said);
  }
}

/** The present state as a list of names and values. */
function state(now) {
  if (!now) return h("p", { class: "empty" }, "It no longer exists; only its history is kept.");
  return h("dl", { class: "state" }, ...Object.entries(now).map(([name, value]) =>
    h("div", {}, h("dt", {}, heading(name)), h("dd", {}, show(name, value)))));
}

function show(name, value) {
  if (value === null || value === "") return "–";
  if (Array.isArray(value)) return value.length === 0 ? "none" : h("ul", {}, ...value.map((v) => h("li", {}, line(v))));
  if (typeof value === "object") return state(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") return count(value);
  if (name.endsWith("_at")) return dateTime(value);
  if (name === "reason") return reason(value);
  if (name === "release_reason") return releaseReason(value);
  const kind = kinds.find((k) => name === `${k}_id`) ?? (/^(retry_of|retried_by)$/.test(name) ? "request" : undefined);
  return kind ? historyLink(kind, value) : isolated(value);
}

/** One of several reservations or requests. */
function line(item) {
  if (typeof item !== "object") return show("", item);
  const kind = item.reservation_id ? "reservation" : "request";
  const id = item.reservation_id ?? item.request_id;
  if (!id) return json(item);
  const why = item.release_reason ? `: ${releaseReason(item.release_reason)}` : item.reason ? `: ${reason(item.reason).toLowerCase()}` : "";
  const of = item.variant_id == null ? [] : [` · ${count(item.quantity)} × `, historyLink("variant", item.variant_id)];
  return h("span", {}, historyLink(kind, id, `${kind} ${shortId(id)}`), ` ${item.status ?? ""}${why}`, ...of);
}

/** A field's name as a heading: expires_at is "Expires at". */
function heading(name) {
  const text = name.replaceAll("_", " ").replace(/ id$/, "");
  return text[0].toUpperCase() + text.slice(1);
}

function entry(event, id) {
  const kind = event.action.split(".")[0];
  const target = kinds.includes(kind) && event.target_id !== id ? historyLink(kind, event.target_id, `${kind} ${shortId(event.target_id)}`) : null;
  const by = [
    event.actor && `by ${isolated(event.actor)}`,
    event.correlation_id && event.correlation_id !== event.target_id && `correlation ${isolated(event.correlation_id)}`,
  ].filter(Boolean);
  return h("li", {},
    h("p", {}, h("time", { datetime: event.at }, dateTime(event.at)), h("b", {}, action(event)), h("span", {}, about(event))),
    h("p", { class: "note" }, target, ...by.map((text) => h("span", {}, text))),
    h("details", {}, h("summary", {}, "Before and after"),
      h("pre", { tabindex: "0" }, json({ before: event.before, after: event.after }, 2))));
}

function json(value, indent) {
  return JSON.stringify(value, (_, field) => (typeof field === "string" ? isolated(field) : field), indent);
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

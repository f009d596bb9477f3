// The page: signing in, the live connection, and what is drawn from it.

import { Actions } from "./actions.js";
import { API } from "./api.js";
import { Board, tick } from "./board.js";
import { latencyChart, outcomesChart } from "./charts.js";
import { now, setClock } from "./clock.js";
import { announce, clear, confirm } from "./confirm.js";
import { byId, keepFocus, setText, show } from "./dom.js";
import { History } from "./history.js";
import { Live } from "./live.js";
import { chartsBehind, clockTime, duration, isolated } from "./words.js";

const stored = "holdfast-ops-key";
const channels = { overview: "ops.overview", outcomes: "projection.outcomes.rate.all", latency: "projection.outcomes.latency.all" };
// Without live frames the overview is called this often, and its figures are
// old if that fails, too.
const pollMilliseconds = 5_000;
const oldMilliseconds = 3 * pollMilliseconds;

/** What a signed-in operator sees, until it is closed. */
class Session {
  #api;
  #live;
  #board;
  #history;
  #charts;
  #state = "connecting";
  #retryAt = 0;
  #shownAt = Date.now();
  #polling = false;
  #polled = false;
  #timer;
  #events = new AbortController();

  /** owner is the key's tenant and prefix. */
  constructor(api, owner, overview) {
    this.#api = api;
    this.owner = owner;
    const actions = new Actions(api);
    this.#board = new Board(actions);
    for (const id of ["board", "session", "search"]) show(byId(id), true);
    setText(byId("owner"), `Tenant ${isolated(owner.tenant)}${owner.cell ? ` · cell ${isolated(owner.cell)}` : ""} · key ${owner.prefix}…`);
    this.#charts = { [channels.outcomes]: outcomesChart(byId("outcomes")), [channels.latency]: latencyChart(byId("latency")) };
    this.#overview(overview);
    this.#history = new History(api, actions);
    this.#live = new Live({
      api,
      channels: Object.values(channels),
      onFrame: (channel, event, payload) => this.#frame(channel, event, payload),
      onState: (state, retryAt) => this.#connection(state, retryAt),
      onDenied: denied,
      onRefused: (channel, detail) => this.#charts[channel]?.refuse(detail),
    });
    this.#timer = setInterval(() => this.#second(), 1000);
    const { signal } = this.#events;
    byId("reconnect").addEventListener("click", this.#live.reconnect, { signal });
    byId("sign-out").addEventListener("click", () => signOut(""), { signal });
    this.#history.open();
  }

  close() {
    clearInterval(this.#timer);
    this.#events.abort();
    this.#live.close();
    this.#history.close();
    this.#board.close();
    clear();
    for (const id of ["connection", "owner"]) setText(byId(id), "");
    Object.values(this.#charts).forEach((chart) => chart.close());
    for (const id of ["board", "session", "search"]) show(byId(id), false);
  }

  #frame(channel, event, payload) {
    if (channel === channels.overview) {
      this.#polled = false;
      this.#overview(payload);
    } else this.#charts[channel]?.take(event, payload);
  }

  #overview(overview) {
    if (!overview) return;
    setClock(overview.at);
    this.#shownAt = Date.now();
    this.#board.show(overview);
    const behind = chartsBehind(overview.subscriptions);
    Object.values(this.#charts).forEach((chart) => chart.behind(behind));
  }

  /** Calls for the overview, if no frame has brought it for a while. */
  async #poll() {
    if (this.#polling || document.visibilityState !== "visible" || Date.now() - this.#shownAt < pollMilliseconds) return;
    this.#polling = true;
    try {
      const overview = await this.#api.get("/v1/ops/overview");
      if (this.#events.signal.aborted) return;
      this.#polled = true;
      this.#overview(overview);
    } catch (problem) {
      if (!this.#events.signal.aborted && isDenied(problem)) denied(problem);
    } finally {
      this.#polling = false;
    }
  }

  #second() {
    if (document.visibilityState === "visible") Object.values(this.#charts).forEach((chart) => chart.draw());
    tick();
    this.#poll();
    this.#showConnection();
  }

  #connection(state, retryAt = 0) {
    if (state === this.#state && retryAt === this.#retryAt) return;
    this.#state = state;
    this.#retryAt = retryAt;
    if (state !== "live") Object.values(this.#charts).forEach((chart) => chart.lose());
    this.#showConnection();
  }

  #showConnection() {
    keepFocus(() => this.#sayConnection());
  }

  /** Says in words whether the figures are live. Only a change is announced. */
  #sayConnection() {
    const age = Date.now() - this.#shownAt;
    const text = byId("connection");
    const [state, said] =
      age > oldMilliseconds ? ["waiting", `${this.#state === "live" ? "No news for a while" : "Not connected"}: figures of ${clockTime(now() - age)}`]
        : this.#polled ? ["polling", `Not live: figures every ${pollMilliseconds / 1000} s`]
          : this.#state === "live" ? ["live", "Live"]
            : ["connecting", "Connecting…"];
    text.dataset.state = state;
    setText(text, said);
    show(byId("reconnect"), this.#state === "waiting" && this.#retryAt - Date.now() > 2_000);
    byId("reconnect").title = `The next attempt is in ${duration((this.#retryAt - Date.now()) / 1000)}.`;
  }
}

let session = null;
let isAsking = false;

function isDenied(problem) {
  return problem.status === 401 || problem.status === 403;
}

function denied(problem) {
  signOut(problem.status === 403 ? "The key no longer has the scope ops." : "The key is no longer valid.");
}

/**
 * Signs in with the key if the service accepts it for the overview, and else
 * changes nothing. A key of a link replaces one of another tenant only if the
 * operator agrees.
 */
async function signIn(key, isLinked = false) {
  const button = byId("sign-in").querySelector("button");
  button.disabled = true;
  try {
    const api = new API(key);
    const [overview, owner] = await Promise.all([api.get("/v1/ops/overview"), api.get("/v1/key")]);
    const asks = isLinked && session !== null && session.owner.tenant !== owner.tenant;
    if (asks && !(await agrees(session.owner, owner))) return;
    sessionStorage.setItem(stored, key);
    show(byId("sign-in"), false);
    session?.close();
    byId("content").focus({ preventScroll: true });
    session = new Session(api, owner, overview);
  } catch (problem) {
    if (isDenied(problem) && sessionStorage.getItem(stored) === key) sessionStorage.removeItem(stored);
    const message = { 401: "The service does not know this key.", 403: "This key lacks the scope ops." }[problem.status];
    if (session) announce(message ?? problem.message);
    else askForKey(message ?? problem.message);
  } finally {
    button.disabled = false;
  }
}

/** Asks whether the tab may show another tenant. */
function agrees(present, linked) {
  const name = isolated(linked.tenant);
  return confirm({
    title: `Show the tenant ${name}?`,
    effect: `The address had the key ${linked.prefix}… of the tenant ${name}. This tab shows the tenant ${isolated(present.tenant)}, with the key ${present.prefix}….`,
    button: "Show the other tenant",
    run: async () => "",
  });
}

function signOut(message) {
  sessionStorage.removeItem(stored);
  session?.close();
  session = null;
  if (message === "") history.replaceState(null, "", location.pathname);
  askForKey(message);
}

function askForKey(message) {
  show(byId("sign-in"), true);
  setText(byId("sign-in-error"), message);
  byId("key").value = "";
  byId("key").focus();
}

byId("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  signIn(byId("key").value.trim());
});

/** Takes the key out of the fragment: it must not stay in the address bar. */
function keyOfFragment() {
  const [, key] = /^#key=(.+)$/.exec(location.hash) ?? [];
  if (!key) return null;
  history.replaceState(null, "", location.pathname);
  try {
    return decodeURIComponent(key);
  } catch {
    return key; // a % that is none of an escape; the service refuses it
  }
}

/**
 * Signs in with the key of a link, unless the operator is being asked about
 * another one. The key that the tab has comes first, so that it can be compared.
 */
async function follow(key) {
  if (isAsking) return;
  isAsking = true;
  const kept = sessionStorage.getItem(stored);
  if (!session && kept) await signIn(kept);
  if (session || !sessionStorage.getItem(stored)) await signIn(key, true);
  isAsking = false;
}

// A link with a key that is opened in a tab that shows the page already.
addEventListener("hashchange", () => {
  const key = keyOfFragment();
  if (key) follow(key);
});

const linked = keyOfFragment();
const kept = sessionStorage.getItem(stored);
if (linked) follow(linked);
else if (kept) signIn(kept);
else askForKey("");

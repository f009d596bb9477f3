// The page: signing in, the live connection, and what is drawn from it.

import { Actions } from "./actions.js";
import { API } from "./api.js";
import { Board, tick } from "./board.js";
import { latencyChart, outcomesChart } from "./charts.js";
import { now, setClock } from "./clock.js";
import { announce, clear } from "./confirm.js";
import { byId, keepFocus, setText, show } from "./dom.js";
import { History } from "./history.js";
import { Live } from "./live.js";
import { clockTime, duration } from "./words.js";

const stored = "holdfast-ops-key";
const channels = { overview: "ops.overview", outcomes: "projection.outcomes.rate.all", latency: "projection.outcomes.latency.all" };
const staleMilliseconds = 5_000;

/** What a signed-in operator sees, until it is closed. */
class Session {
  #live;
  #board;
  #history;
  #charts;
  #state = "connecting";
  #retryAt = 0;
  #shownAt = Date.now();
  #timer;
  #events = new AbortController();

  constructor(key, overview) {
    const api = new API(key);
    const actions = new Actions(api);
    this.#board = new Board(actions);
    for (const id of ["board", "session", "search"]) show(byId(id), true);
    this.#charts = { [channels.outcomes]: outcomesChart(byId("outcomes")), [channels.latency]: latencyChart(byId("latency")) };
    this.#overview(overview);
    this.#history = new History(api, actions);
    this.#live = new Live({
      api,
      channels: Object.values(channels),
      onFrame: (channel, event, payload) => this.#frame(channel, event, payload),
      onState: (state, retryAt) => this.#connection(state, retryAt),
      onDenied: (problem) => signOut(problem.status === 403 ? "The key no longer has the scope ops." : "The key is no longer valid."),
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
    setText(byId("connection"), "");
    Object.values(this.#charts).forEach((chart) => chart.close());
    for (const id of ["board", "session", "search"]) show(byId(id), false);
  }

  #frame(channel, event, payload) {
    if (channel === channels.overview) this.#overview(payload);
    else this.#charts[channel]?.take(event, payload);
  }

  #overview(overview) {
    if (!overview) return;
    setClock(overview.at);
    this.#shownAt = Date.now();
    this.#board.show(overview);
  }

  #second() {
    if (document.visibilityState === "visible") Object.values(this.#charts).forEach((chart) => chart.draw());
    tick();
    this.#showConnection();
  }

  #connection(state, retryAt = 0) {
    if (state === this.#state && retryAt === this.#retryAt) return;
    this.#state = state;
    this.#retryAt = retryAt;
    this.#showConnection();
  }

  #showConnection() {
    keepFocus(() => this.#sayConnection());
  }

  /** Says in words whether the figures are live. Only a change is announced. */
  #sayConnection() {
    const age = Date.now() - this.#shownAt;
    const stale = age > staleMilliseconds;
    const text = byId("connection");
    text.dataset.state = this.#state === "live" && stale ? "waiting" : this.#state;
    const since = `figures of ${clockTime(now() - age)}`;
    if (this.#state === "live") setText(text, stale ? `No news for a while: ${since}` : "Live");
    else if (!stale) setText(text, "Connecting…");
    else setText(text, `Not connected: ${since}`);
    show(byId("reconnect"), this.#state === "waiting" && this.#retryAt - Date.now() > 2_000);
    byId("reconnect").title = `The next attempt is in ${duration((this.#retryAt - Date.now()) / 1000)}.`;
  }
}

let session = null;

/** Signs in with the key if the service accepts it for the overview, and else changes nothing. */
async function signIn(key) {
  const button = byId("sign-in").querySelector("button");
  button.disabled = true;
  try {
    const overview = await new API(key).get("/v1/ops/overview");
    sessionStorage.setItem(stored, key);
    show(byId("sign-in"), false);
    session?.close();
    byId("content").focus({ preventScroll: true });
    session = new Session(key, overview);
  } catch (problem) {
    const message = { 401: "The service does not know this key.", 403: "This key lacks the scope ops." }[problem.status];
    if (session) announce(message ?? problem.message);
    else askForKey(message ?? problem.message);
  } finally {
    button.disabled = false;
  }
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

// A link with a key that is opened in a tab that shows the page already.
addEventListener("hashchange", () => {
  const key = keyOfFragment();
  if (key) signIn(key);
});

const key = keyOfFragment() ?? sessionStorage.getItem(stored);
if (key) signIn(key);
else askForKey("");

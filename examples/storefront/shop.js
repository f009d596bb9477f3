// The visitor's cart: what it holds, what is being asked for, and the calls that
// change it. It knows nothing of the page: it calls onChange with a new state.

import { cartPath, itemPath } from "./api.js";
import { follow, watchStock } from "./events.js";
import { failureText, problemText, units } from "./words.js";

const CART_KEY = "storefront-cart";

// cartId is the visitor's cart, the same in each tab and after a reload. An id
// that cannot be guessed keeps other visitors out of the cart.
function cartId() {
  try {
    const known = localStorage.getItem(CART_KEY);
    if (known) return known;
    const made = crypto.randomUUID();
    localStorage.setItem(CART_KEY, made);
    return made;
  } catch {
    return crypto.randomUUID(); // the browser stores nothing: the cart lasts as long as the page
  }
}

const initial = {
  loaded: false,
  busy: false, // a call is under way
  held: 0, // units that the cart holds, without those of sets
  sets: 0, // sets that the cart holds: kits, whose parts are held together
  expiresAt: null, // when the first of them goes back on sale, in ms
  wished: null, // units asked for and not decided yet
  wishesSet: false, // a set is asked for and not decided yet
  position: undefined, // in the queue; undefined while not queued, null if unknown
  waiting: false, // in line for units; position is then the place, from 1
  stock: null, // what is left, null if unknown
  message: null, // { tone: "good" | "bad" | "wait" | "spoken", text }
};

export class Shop {
  state = initial;
  #api;
  #settings;
  #cart = cartId();
  #onChange;
  #tabs = new BroadcastChannel(CART_KEY);
  #queued = false; // a request is being followed
  #reads = 0; // reads of the cart that were started
  #latestRead = 0; // the latest of them that was answered

  constructor(api, settings, onChange) {
    this.#api = api;
    this.#settings = settings;
    this.#onChange = onChange;
    this.#tabs.onmessage = () => this.refresh();
  }

  // refresh reads the cart. After a reload, or a change in another tab, it
  // follows the request that is still queued.
  async refresh() {
    if (this.state.busy) return;
    try {
      const waiting = await this.#readCart();
      if (waiting && !this.state.busy) await this.#run(() => this.#settle(waiting.request_id, waiting.quantity, waiting.kind));
    } catch (error) {
      this.#fail(error);
    }
  }

  // order asks for a quantity: it adds to an empty cart, and changes one that
  // holds units already. With inLine a request that comes up short waits in line.
  // A quantity can't be changed beside a set, which has units of the product too,
  // but units can be added.
  order(quantity, inLine = false) {
    return this.#run(async () => {
      const { held, sets } = this.state;
      this.#set({ wished: quantity });
      const accepted =
        held === 0 || (sets > 0 && quantity > held)
          ? await this.#send("POST", cartPath(this.#cart, "/items"), {
              variant_id: this.#settings.variant_id,
              quantity: quantity - held,
              ...(inLine && { wait_for_stock: true }),
            })
          : await this.#send("PATCH", itemPath(this.#cart, this.#settings.variant_id), { quantity });
      this.#tabs.postMessage("changed");
      await this.#settle(accepted.request_id, quantity, "set");
    });
  }

  // orderSet asks for a set: all of its parts are held, or none.
  orderSet() {
    return this.#run(async () => {
      this.#set({ wishesSet: true });
      const accepted = await this.#send("POST", cartPath(this.#cart, "/items"), { kit_id: this.#settings.kit.kit_id, quantity: 1 });
      this.#tabs.postMessage("changed");
      await this.#settle(accepted.request_id, 1, "lines");
    });
  }

  // remove empties the cart. It also cancels a request that is queued: order then
  // learns that from the request.
  remove() {
    const path = cartPath(this.#cart);
    if (this.#queued) return this.#api.send("DELETE", path).catch((error) => this.#fail(error));
    return this.#run(async () => {
      await this.#send("DELETE", path);
      await this.#changed({ tone: "good", text: "Removed from your cart." });
    });
  }

  // extend moves the end of the hold.
  extend() {
    return this.#run(async () => {
      await this.#send("POST", cartPath(this.#cart, "/extend"), { seconds: this.#settings.extend_seconds ?? 60 });
      await this.#changed({ tone: "good", text: "You have more time now." });
    });
  }

  // checkout buys what the cart holds, all of it or nothing.
  checkout() {
    return this.#run(async () => {
      const { committed } = await this.#send("POST", cartPath(this.#cart, "/checkout"));
      const pairs = committed.filter((reservation) => reservation.variant_id === this.#settings.variant_id);
      const sold = pairs.reduce((sum, reservation) => sum + reservation.quantity, 0);
      await this.#changed({ tone: "good", text: `Thank you! ${units(sold)} ${sold === 1 ? "is" : "are"} yours.` });
    });
  }

  // watch shows what is left until the signal aborts.
  async watch(signal) {
    try {
      for await (const stock of watchStock(this.#api, this.#settings.variant_id, signal)) this.#set({ stock });
    } catch {
      this.#set({ stock: null }); // aborted, or refused: the page does without it
    }
  }

  // settle follows a request until it is decided.
  async #settle(requestId, quantity, kind) {
    const change =
      kind === "lines"
        ? { wishesSet: true }
        : { wished: kind === "add" || kind === "wait" ? this.state.held + quantity : quantity };
    this.#queued = true;
    try {
      for await (const request of follow(this.#api, requestId)) {
        if (request.status === "done") {
          const offered = this.state.waiting;
          await this.#changed(
            offered
              ? { tone: "good", text: "It is your turn. Check out before the time is up, or the next in line gets it." }
              : { tone: "spoken", text: "It is in your cart." },
          );
          if (request.reservation && this.state.held === 0) this.#fail({ status: 409, code: "hold_expired" });
          return;
        }
        if (request.status === "failed") {
          await this.#readCart();
          return await this.#changed({ tone: "bad", text: failureText(request, this.state.held) });
        }
        this.#set({ ...change, position: request.position, waiting: request.status === "waiting", message: null });
      }
    } finally {
      this.#queued = false;
    }
  }

  // changed reads the cart after a change, and lets the other tabs read it too.
  async #changed(message) {
    await this.#readCart();
    this.#set({ wished: null, wishesSet: false, position: undefined, waiting: false, message });
    this.#tabs.postMessage("changed");
  }

  // readCart shows what the cart holds, and returns the oldest request that is
  // not decided. An answer is ignored if a later read was answered before it.
  async #readCart() {
    const read = ++this.#reads;
    const cart = await this.#api.read(cartPath(this.#cart));
    if (read < this.#latestRead) return undefined;
    this.#latestRead = read;
    const mine = (item) => item.variant_id === this.#settings.variant_id;
    const isHeld = (reservation) => reservation.status === "held";
    const sum = (some) => some.reduce((total, reservation) => total + reservation.quantity, 0);
    const reservations = cart.reservations.filter((item) => mine(item) && !item.kit_id); // newest first
    const held = reservations.filter(isHeld);
    const parts = cart.reservations.filter((item) => item.kit_id && item.kit_id === this.#settings.kit?.kit_id && isHeld(item));
    const ends = [...held, ...parts].map((reservation) => Date.parse(reservation.expires_at));
    const lost = this.state.held > 0 && held.length === 0 && reservations[0]?.status === "expired";
    this.#set({
      loaded: true,
      held: sum(held),
      sets: sum(parts.filter(mine)), // one unit of the product each
      expiresAt: ends.length === 0 ? null : Math.min(...ends),
    });
    if (lost) this.#fail({ status: 409, code: "hold_expired" });
    return cart.requests.find((request) => mine(request) || request.kind === "lines");
  }

  #send(method, path, body) {
    return this.#api.send(method, path, body, (seconds) => {
      this.#set({ message: { tone: "wait", text: `The shop is busy. Trying again in ${Math.ceil(seconds)} s.` } });
    });
  }

  // run runs one action. Further ones are ignored until it has ended.
  async #run(action) {
    if (this.state.busy) return;
    this.#set({ busy: true, message: null });
    try {
      await action();
    } catch (error) {
      await this.#readCart().catch(() => {}); // the error is reported below
      this.#fail(error);
    } finally {
      this.#set({ busy: false, wished: null, wishesSet: false, position: undefined, waiting: false });
    }
  }

  #fail(error) {
    this.#set({ message: { tone: "bad", text: problemText(error) } });
  }

  #set(change) {
    this.state = { ...this.state, ...change };
    this.#onChange(this.state);
  }
}

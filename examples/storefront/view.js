// What the visitor sees. Each text is set with textContent: a product's name
// that contains HTML is shown as it is written.

import { formatHold, formatSale } from "./clock.js";
import { lineText, queueText, units } from "./words.js";

const QUANTITY_MAX = 10; // where the settings have no limit
const LOW = 5; // units left that are worth a warning
const EXPIRE_EVERY = 1000;
const ANNOUNCE_EVERY = 10_000;
const URGENT = 30_000; // before the end of the hold
const WARN_AT = [60, 15]; // seconds before the end of the hold

const byId = (id) => document.getElementById(id);

// show sets a text only if it differs, so that a selection stays.
function show(id, text) {
  const element = byId(id);
  if (element.textContent !== text) element.textContent = text;
}

// A digital product, or one on backorder, does not sell out.
const isCounted = (stock) => stock !== null && stock.tracked && !stock.backorder;

function money(price, quantity) {
  const format = new Intl.NumberFormat("en", { style: "currency", currency: price.currency });
  const digits = format.resolvedOptions().maximumFractionDigits;
  return format.format((price.amount * quantity) / 10 ** digits);
}

export class View {
  #settings;
  #clock;
  #state = null;
  #quantity = byId("quantity");
  #span = 0; // of the hold's bar, in ms
  #spanEnd = null; // the end of the hold that the bar was made for
  #asked = 0; // when the end of the hold was last checked
  #announced = { text: "", at: 0 };

  constructor(settings, clock) {
    this.#settings = settings;
    this.#clock = clock;
    document.title = `${settings.name} | Fieldhouse`;
    show("name", settings.name);
    show("price", money(settings.price, 1));
    this.#quantity.max = settings.max_per_cart ?? QUANTITY_MAX;
    byId("set").hidden = !settings.kit;
    if (settings.kit) {
      show("set-name", `${settings.kit.name}, ${money(settings.kit.price, 1)}`);
      show("set-about", settings.kit.about);
    }
    if (settings.max_per_cart) show("limit", `At most ${units(settings.max_per_cart)} in a cart at one time.`);
  }

  // connect lets the buttons act on the shop.
  connect(shop) {
    const onClick = (id, action) =>
      byId(id).addEventListener("click", (event) => {
        if (event.currentTarget.ariaDisabled !== "true") action();
      });
    onClick("less", () => this.#step(-1));
    onClick("more", () => this.#step(1));
    onClick("set-add", () => shop.orderSet());
    onClick("checkout", () => shop.checkout());
    onClick("extend", () => shop.extend());
    onClick("remove", () => shop.remove());
    onClick("leave", () => shop.remove());
    this.#quantity.addEventListener("change", () => this.#step(0));
    byId("order").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#step(0);
      if (byId("submit").ariaDisabled !== "true") shop.order(this.#quantity.valueAsNumber, this.#isOut());
    });
    this.#quantity.addEventListener("input", () => this.#renderOrder());
  }

  render(state) {
    const before = this.#state;
    this.#state = state;
    // The quantity shows what the cart holds, after a refusal too.
    const settled = before?.wished !== state.wished || before?.held !== state.held;
    if (settled) this.#quantity.value = state.wished ?? (state.held || 1);
    show("bag", String((state.wished ?? state.held) + state.sets + (state.wishesSet ? 1 : 0)));
    this.#renderStock(state.stock);
    this.#renderCard(state);
    this.#renderMessage(state.message);
    this.#renderTimes(this.#clock.now());
    this.#announce();
  }

  // tick moves the countdowns. It returns true when the hold seems to have
  // ended, at most once per second.
  tick() {
    const now = this.#clock.now();
    this.#renderTimes(now);
    const { expiresAt } = this.#state;
    if (expiresAt === null || now < expiresAt || now - this.#asked < EXPIRE_EVERY) return false;
    this.#asked = now;
    return true;
  }

  #renderTimes(now) {
    this.#renderSale(now);
    this.#renderOrder();
    const { expiresAt } = this.#state;
    if (expiresAt === null) return;
    const left = expiresAt - now;
    show("hold-left", `${formatHold(left)} left`);
    if (this.#spanEnd !== expiresAt) {
      this.#span = left;
      this.#spanEnd = expiresAt;
    }
    byId("hold-bar").value = Math.max(0, Math.min(1, left / this.#span));
    byId("card").classList.toggle("urgent", left < URGENT);
    const seconds = Math.floor(left / 1000);
    if (WARN_AT.includes(seconds)) this.#say(`${seconds} seconds left.`);
  }

  #step(by) {
    const n = Math.trunc(this.#quantity.valueAsNumber) || 1;
    this.#quantity.value = Math.max(1, Math.min(Number(this.#quantity.max), n + by));
    this.#renderOrder();
  }

  #isOpen() {
    const now = this.#clock.now();
    return Date.parse(this.#settings.sale_starts_at) <= now && now < Date.parse(this.#settings.sale_ends_at);
  }

  // isOut reports whether the next units are for those in line.
  #isOut() {
    const { stock } = this.#state;
    return isCounted(stock) && stock.available <= 0;
  }

  // closedLabel says when the sale begins, if it does on this day.
  #closedLabel() {
    const starts = new Date(this.#settings.sale_starts_at);
    const now = new Date(this.#clock.now());
    if (starts <= now || starts.toDateString() !== now.toDateString()) return "Not on sale";
    return `Not on sale before ${starts.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })}`;
  }

  #renderSale(now) {
    const starts = Date.parse(this.#settings.sale_starts_at);
    const ends = Date.parse(this.#settings.sale_ends_at);
    const label = now < starts ? "The sale starts in" : now < ends ? "The sale ends in" : "The sale has ended";
    show("sale-label", label);
    show("sale-left", now < ends ? formatSale((now < starts ? starts : ends) - now) : "");
  }

  #renderStock(stock) {
    byId("left").hidden = !isCounted(stock);
    if (!isCounted(stock)) return;
    const left = Math.max(0, stock.available);
    byId("left").classList.toggle("low", left > 0 && left <= LOW);
    byId("left").classList.toggle("out", left === 0);
    show("left-count", left === 0 ? "Sold out" : left <= LOW ? `Only ${left} left` : `${left} left`);
    const inCarts = Math.max(0, stock.reserved);
    show("left-carts", inCarts === 0 ? "" : `${units(inCarts)} in carts${left === 0 ? ", and may come back" : ""}`);
  }

  // The label of the button says what it would do.
  #renderOrder() {
    const { held, busy, loaded, waiting, wished } = this.#state;
    const same = held > 0 && this.#quantity.valueAsNumber === held;
    let label = "Add to cart";
    if (!this.#isOpen()) label = this.#closedLabel();
    else if (waiting) label = "In line";
    else if (wished !== null) label = "One moment…";
    else if (held > 0) label = same ? "In your cart" : "Update cart";
    else if (this.#isOut()) label = "Join the waiting list";
    show("submit", label);
    byId("set-add").ariaDisabled = String(!this.#isOpen() || busy || !loaded);
    const disabled = !this.#isOpen() || busy || !loaded || same;
    byId("submit").ariaDisabled = String(disabled);
    byId("less").ariaDisabled = String(busy || this.#quantity.valueAsNumber <= 1);
    byId("more").ariaDisabled = String(busy || this.#quantity.valueAsNumber >= Number(this.#quantity.max));
    this.#quantity.readOnly = busy;
  }

  #renderCard(state) {
    const queued = state.wished !== null || state.wishesSet;
    const card = byId("card");
    const focused = card.contains(document.activeElement) ? document.activeElement : null;
    const quantity = state.wished ?? state.held;
    const sets = state.sets + (state.wishesSet ? 1 : 0);
    card.hidden = quantity === 0 && sets === 0;
    byId("line").hidden = quantity === 0;
    byId("set-line").hidden = sets === 0;
    if (sets > 0) {
      show("set-item", `${sets} × ${this.#settings.kit.name}`);
      show("set-total", money(this.#settings.kit.price, sets));
    }
    card.classList.toggle("queued", queued);
    show("card-title", !queued ? "Held for you" : state.waiting ? lineText(state.position) : queueText(state.position));
    byId("hold-left").hidden = queued || state.expiresAt === null;
    byId("hold-bar").hidden = queued || state.expiresAt === null;
    byId("held-actions").hidden = queued;
    byId("queue-actions").hidden = !queued || state.position === undefined;
    show("leave", state.held + state.sets > 0 ? "Remove everything" : state.waiting ? "Leave the waiting list" : "Leave the queue");
    for (const id of ["checkout", "extend", "remove"]) byId(id).ariaDisabled = String(state.busy);
    show("line-item", `${quantity} × ${this.#settings.name}`);
    show("line-total", money(this.#settings.price, quantity));
    // A button that is gone must not take the keyboard's place on the page along.
    if (focused && !focused.checkVisibility()) (card.hidden ? byId("buy") : card).focus();
  }

  #renderMessage(message) {
    // What the cart shows already is for a screen reader only.
    byId("message").hidden = message === null || message.tone === "spoken";
    byId("message").dataset.tone = message?.tone ?? "";
    show("message", message?.text ?? "");
  }

  // announce tells a screen reader what has changed. A position that changes
  // each second is repeated less often.
  #announce() {
    const { message, wished, position, waiting, expiresAt } = this.#state;
    if (message && message.text !== this.#announced.message) {
      const held = expiresAt !== null && message.tone !== "bad" ? ` Held for you, ${formatHold(expiresAt - this.#clock.now())} left.` : "";
      this.#say(message.text + held);
    } else if (wished !== null && position !== undefined && Date.now() - this.#announced.at > ANNOUNCE_EVERY) {
      this.#say(waiting ? lineText(position) : queueText(position));
    }
    this.#announced.message = message?.text;
  }

  #say(text) {
    show("announcement", text);
    this.#announced.at = Date.now();
  }
}

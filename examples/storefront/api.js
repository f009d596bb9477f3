// Calls of the API. A call that changes something carries an idempotency key
// and is repeated under the same key until it is answered, so that a lost answer
// never adds a unit twice.

import { pause } from "./clock.js";

// Problem is an answer that is an error (RFC 9457). Its code is stable; its
// detail is for people.
export class Problem extends Error {
  constructor(status, body, retryAfter) {
    super(body.detail ?? `The server answers ${status}.`);
    this.status = status;
    this.code = body.code ?? "";
    this.retryAfter = retryAfter; // seconds
  }

  // passes reports whether the same call can succeed later.
  get passes() {
    return this.status === 429 || this.status >= 500;
  }
}

const ATTEMPTS = 6;
// The API answers every call within 13 seconds.
const ANSWER_TIME = 20_000;
const WAIT_MAX = 60; // seconds

export class Api {
  #clock;
  #key;

  constructor(clock, key) {
    this.#clock = clock;
    this.#key = key;
  }

  // read is a GET. Its result is the body.
  async read(path) {
    const response = await this.#fetch("GET", path, {}, undefined, AbortSignal.timeout(ANSWER_TIME));
    return response.json();
  }

  // open begins to read a stream of events. The caller reads the body.
  open(path, lastEventId, signal) {
    const headers = { Accept: "text/event-stream" };
    if (lastEventId) headers["Last-Event-ID"] = lastEventId;
    return this.#fetch("GET", path, headers, undefined, signal);
  }

  // send makes a call that changes something. onWait is told for how many
  // seconds the call waits before it is repeated.
  async send(method, path, body, onWait = () => {}) {
    const headers = { "Idempotency-Key": crypto.randomUUID() };
    for (let attempt = 1; ; attempt++) {
      try {
        const response = await this.#fetch(method, path, headers, body, AbortSignal.timeout(ANSWER_TIME));
        return await response.json();
      } catch (error) {
        const refused = error instanceof Problem;
        if (attempt === ATTEMPTS || (refused && !error.passes)) throw error;
        const seconds = Math.min(WAIT_MAX, (refused && error.retryAfter) || 2 ** (attempt - 2));
        onWait(seconds);
        // All visitors were refused at the same moment. They must not return at
        // the same moment.
        await pause(seconds * 1000 * (1 + Math.random() / 4));
      }
    }
  }

  async #fetch(method, path, headers, body, signal) {
    const options = { method, signal, cache: "no-store", headers: { ...headers, Authorization: `Bearer ${this.#key}` } };
    if (body !== undefined) {
      options.headers["Content-Type"] = "application/json";
      options.body = JSON.stringify(body);
    }
    const response = await this.#clock.fetch(path, options);
    if (response.ok) return response;
    // A gateway in between may answer in a form of its own.
    const problem = await response.json().catch(() => ({}));
    throw new Problem(response.status, problem, Number(response.headers.get("Retry-After")) || 0);
  }
}

// The ids are the shop's and the visitor's: they may have any character.
export const cartPath = (cartId, rest = "") => `/v1/carts/${encodeURIComponent(cartId)}${rest}`;
export const itemPath = (cartId, variantId) => cartPath(cartId, `/items/${encodeURIComponent(variantId)}`);

// Calls of the public API with the key that the operator entered.

import { visible } from "./words.js";

const timeoutMilliseconds = 15_000;
const attempts = 3;

/** An answer of the API that is an error, or the lack of an answer. */
export class Problem extends Error {
  /** status is 0 if there was no answer. */
  constructor(status, code, detail) {
    super(visible(detail)); // it may quote an id
    this.status = status;
    this.code = code;
  }
}

/** A random id. It needs no secure context, which crypto.randomUUID() does. */
export function randomId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
}

export class API {
  #key;

  constructor(key) {
    this.#key = key;
  }

  get(path) {
    return this.#call("GET", path);
  }

  /**
   * Sends a change with an Idempotency-Key, so that it is done once even if an
   * answer is lost and the change is sent again.
   */
  change(method, path, body) {
    return this.#call(method, path, body, { "Idempotency-Key": randomId() });
  }

  async #call(method, path, body, headers = {}) {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#send(method, path, body, headers);
      } catch (err) {
        if (!(err instanceof Problem) || err.status !== 0 || attempt === attempts) throw err;
      }
    }
  }

  async #send(method, path, body, headers) {
    let response;
    let text;
    try {
      response = await fetch(path, {
        method,
        headers: { Authorization: `Bearer ${this.#key}`, ...(body && { "Content-Type": "application/json" }), ...headers },
        body: body && JSON.stringify(body),
        cache: "no-store",
        credentials: "omit",
        signal: AbortSignal.timeout(timeoutMilliseconds),
      });
      text = await response.text();
    } catch {
      throw new Problem(0, "unreachable", "The service did not answer.");
    }
    const answer = decode(text);
    if (!response.ok) {
      throw new Problem(response.status, answer?.code ?? "", answer?.detail ?? `The service answered ${response.status}.`);
    }
    return answer;
  }
}

function decode(text) {
  try {
    return text === "" ? null : JSON.parse(text);
  } catch {
    return null;
  }
}

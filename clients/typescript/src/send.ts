import { HoldfastError } from "./error.js";

/** How calls are sent. */
export interface Sending {
  /** Sends one attempt; the global fetch if left out. */
  fetch?: (request: Request) => Promise<Response>;
  /** How often a call is sent again at most, after the first attempt; 3 if left out. */
  maxRetries?: number;
  /** The longest wait between two attempts, whatever Retry-After says, in seconds; 20 if left out. */
  maxRetryWait?: number;
  /** Is called after each attempt, such as to log it. */
  onAttempt?: (attempt: Attempt) => void;
  /** For tests: waits so many milliseconds, and draws a number from 0 to 1. */
  clock?: { sleep: (milliseconds: number, signal: AbortSignal) => Promise<void>; random: () => number };
}

/** One attempt of a call. It has no header, so it can be logged. */
export interface Attempt {
  method: string;
  url: string;
  /** 1 for the first. */
  number: number;
  /** The status of the answer; undefined if there is none. */
  status: number | undefined;
  /** Why there is no answer. */
  error: unknown;
  /** After how many milliseconds the call is sent again; undefined if it is not. */
  retryAfter: number | undefined;
}

/** 409 is an answer, and is never retried. */
const retried = new Set([429, 500, 502, 503, 504]);

/** Waits without a Retry-After, in milliseconds, each twice the one before. */
const firstWait = 100;

/** Waits, or throws the signal's reason if it ends before. */
export function sleep(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const end = () => (clearTimeout(timer), reject(signal?.reason));
    const timer = setTimeout(() => (signal?.removeEventListener("abort", end), resolve()), milliseconds);
    signal?.addEventListener("abort", end, { once: true });
  });
}

/** sender returns a fetch that repeats attempts, under one idempotency key. */
export function sender(options: Sending): (request: Request) => Promise<Response> {
  const { fetch = (request: Request) => globalThis.fetch(request), maxRetries = 3, maxRetryWait = 20, onAttempt, clock = { sleep, random: Math.random } } = options;
  return async (request) => {
    if (["POST", "PATCH", "DELETE"].includes(request.method) && !request.headers.has("Idempotency-Key")) {
      request.headers.set("Idempotency-Key", crypto.randomUUID());
    }
    for (let number = 1; ; number++) {
      const last = number > maxRetries;
      let response: Response | undefined;
      let error: unknown;
      try {
        response = await fetch(last ? request : request.clone());
      } catch (cause) {
        request.signal.throwIfAborted();
        error = cause;
      }
      const again = !last && (response === undefined || retried.has(response.status));
      // A quarter more at random, so that those who were refused together do not
      // come back together.
      const wait = again ? waitFor(response, number, maxRetryWait) * (1 + clock.random() / 4) : undefined;
      onAttempt?.({ method: request.method, url: request.url, number, status: response?.status, error, retryAfter: wait });
      if (wait !== undefined) {
        await response?.body?.cancel();
        await clock.sleep(wait, request.signal);
      } else if (response !== undefined) {
        return response;
      } else {
        throw new HoldfastError({ code: "connection", status: 0, detail: `no answer from ${new URL(request.url).host}` }, { cause: error });
      }
    }
  };
}

/** waitFor is how long to wait after an attempt, in milliseconds. */
function waitFor(response: Response | undefined, number: number, maxRetryWait: number): number {
  const seconds = Number(response?.headers.get("Retry-After") ?? NaN);
  return Math.min(Number.isFinite(seconds) && seconds > 0 ? seconds * 1000 : firstWait * 2 ** (number - 1), maxRetryWait * 1000);
}

// The server's clock, estimated from the Date header of its answers. A visitor's
// own clock can be wrong by minutes, and a countdown to the end of a hold must
// not be. The server alone decides when a hold ends: this is for display.

const SECOND = 1000;

export class ServerClock {
  // The server's time minus this computer's is between these two. Each answer
  // narrows the range, because the header counts whole seconds only.
  #low = -Infinity;
  #high = Infinity;

  // now is the server's time, in milliseconds since 1970.
  now() {
    return Date.now() + (Number.isFinite(this.#low) ? (this.#low + this.#high) / 2 : 0);
  }

  // fetch is the browser's fetch. It also reads the answer's Date header.
  async fetch(url, options) {
    const sent = Date.now();
    const response = await fetch(url, options);
    this.#observe(Date.parse(response.headers.get("Date") ?? ""), sent, Date.now());
    return response;
  }

  #observe(date, sent, received) {
    if (Number.isNaN(date)) return;
    const low = date - received;
    const high = date + SECOND - sent;
    this.#low = Math.max(this.#low, low);
    this.#high = Math.min(this.#high, high);
    if (this.#low > this.#high) {
      // One of the clocks was set.
      this.#low = low;
      this.#high = high;
    }
  }
}

const two = (n) => String(n).padStart(2, "0");

// formatHold writes a time as 14:32, in minutes and seconds. It never promises
// more time than there is.
export function formatHold(ms) {
  const seconds = Math.max(0, Math.floor(ms / SECOND));
  return `${Math.floor(seconds / 60)}:${two(seconds % 60)}`;
}

// formatSale writes a longer time, as 2 days 03:04:05. It is not 0 before the
// time is up.
export function formatSale(ms) {
  const seconds = Math.max(0, Math.ceil(ms / SECOND));
  const days = Math.floor(seconds / 86400);
  const rest = seconds % 86400;
  const clock = `${two(Math.floor(rest / 3600))}:${two(Math.floor(rest / 60) % 60)}:${two(rest % 60)}`;
  if (days === 0) return clock;
  return `${days} ${days === 1 ? "day" : "days"} ${clock}`;
}

// pause resolves after a time, or rejects once the signal aborts.
export function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

// The page's subscription to live channels over one WebSocket.

const silenceMilliseconds = 25_000; // the service sends something every 10 s
const backoffMilliseconds = { first: 500, most: 15_000 };

/**
 * Live keeps a WebSocket open until it is closed, and hands on the frames of its
 * channels in order, without gaps: it asks for a channel again if it missed a
 * frame.
 */
export class Live {
  #options;
  #socket = null;
  #versions = new Map();
  #failures = 0;
  #timer = 0;
  #silence = 0;
  #closed = false;

  /**
   * options: api; channels; onFrame(channel, event, payload); onState(state,
   * retryAt) with the states connecting, live and waiting; onDenied(problem) if
   * the key is no longer accepted; onRefused(channel, detail).
   */
  constructor(options) {
    this.#options = options;
    addEventListener("online", this.reconnect);
    document.addEventListener("visibilitychange", this.#shown);
    this.#connect();
  }

  close() {
    this.#closed = true;
    removeEventListener("online", this.reconnect);
    document.removeEventListener("visibilitychange", this.#shown);
    clearTimeout(this.#timer);
    this.#drop();
  }

  /** Ends the wait between two attempts. */
  reconnect = () => {
    if (this.#closed || this.#socket || !this.#timer) return;
    clearTimeout(this.#timer);
    this.#connect();
  };

  #shown = () => {
    if (document.visibilityState === "visible") this.reconnect();
  };

  async #connect() {
    this.#timer = 0;
    this.#options.onState("connecting");
    let ticket;
    try {
      ({ ticket } = await this.#options.api.change("POST", "/v1/live/tickets"));
    } catch (problem) {
      if (this.#closed) return;
      if (problem.status === 401 || problem.status === 403) this.#options.onDenied(problem);
      else this.#wait();
      return;
    }
    if (this.#closed) return;
    const address = new URL(`/v1/live?ticket=${encodeURIComponent(ticket)}`, location.href);
    address.protocol = address.protocol.replace("http", "ws");
    const socket = new WebSocket(address);
    this.#socket = socket;
    this.#versions.clear();
    this.#listen();
    socket.onopen = () => this.#options.channels.forEach((channel) => this.#send({ subscribe: channel }));
    socket.onmessage = (message) => this.#receive(message.data);
    socket.onclose = () => this.#lost();
  }

  #send(message) {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(message));
  }

  /** Starts the wait for the next frame anew; a socket that stays silent is dead. */
  #listen() {
    clearTimeout(this.#silence);
    this.#silence = setTimeout(() => this.#lost(), silenceMilliseconds);
  }

  #receive(text) {
    this.#listen();
    const frame = JSON.parse(text);
    if (frame.event === "heartbeat") return;
    if (frame.event === "error") {
      this.#options.onRefused(frame.channel, frame.detail);
      return;
    }
    this.#failures = 0;
    this.#options.onState("live");
    if (this.#follows(frame)) {
      this.#versions.set(frame.channel, frame.version);
      this.#options.onFrame(frame.channel, frame.event, frame.payload);
    }
  }

  /** Whether a frame is the channel's next one. After a gap it subscribes again. */
  #follows(frame) {
    if (frame.event !== "delta") return true;
    const last = this.#versions.get(frame.channel);
    if (last === undefined || frame.version <= last) return false;
    if ((frame.first_version ?? frame.version) <= last + 1) return true;
    this.#versions.delete(frame.channel);
    this.#send({ unsubscribe: frame.channel });
    this.#send({ subscribe: frame.channel });
    return false;
  }

  #lost() {
    this.#drop();
    if (!this.#closed && !this.#timer) this.#wait();
  }

  #drop() {
    clearTimeout(this.#silence);
    const socket = this.#socket;
    this.#socket = null;
    if (!socket) return;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
  }

  #wait() {
    const longest = Math.min(backoffMilliseconds.most, backoffMilliseconds.first * 2 ** this.#failures++);
    const wait = longest * (0.5 + Math.random() / 2);
    this.#timer = setTimeout(() => this.#connect(), wait);
    this.#options.onState("waiting", Date.now() + wait);
  }
}

// Streams of server-sent events. They are read with fetch, because the browser's
// EventSource cannot send the header Authorization.

import { Problem } from "./api.js";
import { pause } from "./clock.js";

// The server sends a comment at least every 15 seconds.
const SILENCE_MAX = 40_000;
const EVENT_MAX = 1 << 20; // characters
const BACKOFF_MAX = 10_000;

// subscribe yields the data of each event of the stream at path, until the
// signal aborts, if there is one. It connects again when the connection is lost,
// and continues behind the last event. It ends when the server has no more
// events (204) or no such stream (404).
export async function* subscribe(api, path, signal) {
  let lastEventId = "";
  for (let failures = 0; ; failures++) {
    try {
      const response = await withTimeout(api.open(path, lastEventId, signal));
      if (response.status === 204) return;
      for await (const event of readEvents(response.body)) {
        failures = 0;
        lastEventId = event.id || lastEventId;
        yield JSON.parse(event.data);
      }
    } catch (error) {
      if (error instanceof Problem && error.status === 404) return;
      if (signal?.aborted || (error instanceof Problem && !error.passes)) throw error;
    }
    await pause(Math.min(BACKOFF_MAX, 500 * 2 ** failures), signal);
  }
}

// readEvents yields the events of a body. The lines of the API end in a line
// feed, and an event ends in an empty line.
async function* readEvents(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    for (;;) {
      const { value, done } = await withTimeout(reader.read());
      if (done) return;
      text += value;
      const blocks = text.split("\n\n");
      text = blocks.pop();
      if (text.length > EVENT_MAX) throw new Error("the event is too large");
      for (const block of blocks) {
        const event = parseEvent(block);
        if (event.data) yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // the connection may be lost already
  }
}

// parseEvent returns the id and the data of an event. A comment has neither.
function parseEvent(block) {
  const event = { id: "", data: "" };
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    const value = line.slice(colon + 1).replace(/^ /, "");
    if (line.startsWith("id:")) event.id = value;
    if (line.startsWith("data:")) event.data += value;
  }
  return event;
}

function withTimeout(answer) {
  let timer;
  const silence = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error("the server is silent")), SILENCE_MAX);
  });
  return Promise.race([answer, silence]).finally(() => clearTimeout(timer));
}

const isFinished = (request) => request.status === "done" || request.status === "failed";

// follow yields each state of a request until the one that is final. Where the
// API has no stream it polls.
export async function* follow(api, requestId) {
  const path = `/v1/requests/${encodeURIComponent(requestId)}`;
  for await (const request of subscribe(api, `${path}/events`)) {
    yield request;
    if (isFinished(request)) return;
  }
  // The first read does not wait, so that the position is shown at once.
  for (let query = ""; ; query = "?wait=2") {
    const request = await api.read(path + query);
    yield request;
    if (isFinished(request)) return;
    await pause(250);
  }
}

// watchStock yields what is left of a variant, whenever that changes. It ends at
// once where the API has no stream.
export async function* watchStock(api, variantId, signal) {
  for await (const stock of subscribe(api, `/v1/stocks/${encodeURIComponent(variantId)}/events`, signal)) {
    if (stock) yield stock;
  }
}

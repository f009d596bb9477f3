// The service's clock, as its messages show it. Deadlines are compared with this
// clock, because the reader's own may be wrong.

let offset = 0;

/** Sets the clock from the time of a message that has just arrived. */
export function setClock(at) {
  const time = Date.parse(at);
  if (!Number.isNaN(time)) offset = time - Date.now();
}

/** The time in milliseconds since 1970. */
export function now() {
  return Date.now() + offset;
}

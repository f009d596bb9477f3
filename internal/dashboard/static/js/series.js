// The buckets of a projection over time, merged from its snapshots and deltas.

const windowSeconds = 15 * 60;

/** A series of buckets. Times are in whole seconds since 1970. */
export class Series {
  #buckets = new Map();

  bucketSeconds = 5;

  /** Takes a frame of the channel. A delta has the changed buckets as they are now. */
  take(event, payload) {
    if (event !== "delta") this.#buckets.clear();
    if (!payload) return;
    this.bucketSeconds = payload.bucket_seconds ?? this.bucketSeconds;
    for (const bucket of payload.buckets ?? []) this.#buckets.set(Math.floor(Date.parse(bucket.at) / 1000), bucket);
  }

  /**
   * The complete buckets of the last 15 minutes, oldest first: [time, bucket or
   * undefined]. It forgets older ones.
   */
  window(nowMilliseconds) {
    const step = this.bucketSeconds;
    const end = Math.floor(nowMilliseconds / 1000 / step) * step;
    const begin = end - windowSeconds;
    for (const at of this.#buckets.keys()) {
      if (at < begin) this.#buckets.delete(at);
    }
    const points = [];
    for (let at = begin; at < end; at += step) points.push([at, this.#buckets.get(at)]);
    return points;
  }
}

/** Sums the points of each minute: [time of the minute, its buckets], newest first. */
export function byMinute(points) {
  const minutes = new Map();
  for (const [at, bucket] of points) {
    const minute = Math.floor(at / 60) * 60;
    if (!minutes.has(minute)) minutes.set(minute, []);
    if (bucket) minutes.get(minute).push(bucket);
  }
  return [...minutes].reverse();
}

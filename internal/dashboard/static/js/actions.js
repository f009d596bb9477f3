// What an operator can do. Each function asks first, and returns whether it was
// done; retry returns the id of the new request, or null.

import { confirm } from "./confirm.js";
import { count, counted, isolated, shortId } from "./words.js";

export class Actions {
  #api;

  constructor(api) {
    this.#api = api;
  }

  pause(lane) {
    return confirm({
      title: `Pause the ${lane.lane} lane?`,
      effect: "Requests are still accepted and queued, but none of this lane is decided until you resume it. Lanes serve all tenants.",
      button: "Pause the lane",
      run: () => this.#control(lane.lane, { paused: true }, "is paused"),
    });
  }

  resume(lane) {
    return confirm({
      title: `Resume the ${lane.lane} lane?`,
      effect: `Its ${counted(lane.depth, "queued request")} and those that arrive are decided again. Lanes serve all tenants.`,
      button: "Resume the lane",
      run: () => this.#control(lane.lane, { paused: false }, "is resumed"),
    });
  }

  cap(lane) {
    return confirm({
      title: `Cap the ${lane.lane} lane?`,
      effect: "At most this many requests per second are decided, over all processes. The others wait in the queue. Lanes serve all tenants.",
      button: "Cap the lane",
      label: "Requests per second",
      value: lane.rate_cap ?? "",
      run: (cap) => this.#control(lane.lane, { rate_cap: cap }, `is capped at ${count(cap)} per second`),
    });
  }

  uncap(lane) {
    return confirm({
      title: `Remove the cap of the ${lane.lane} lane?`,
      effect: `The lane is now capped at ${count(lane.rate_cap)} per second. Without a cap it decides as fast as it can. Lanes serve all tenants.`,
      button: "Remove the cap",
      run: () => this.#control(lane.lane, { rate_cap: null }, "has no cap"),
    });
  }

  async #control(lane, change, result) {
    await this.#api.change("PATCH", `/v1/lanes/${lane}`, change);
    return `The ${lane} lane ${result}.`;
  }

  pin(variant) {
    return confirm({
      title: `Pin ${isolated(variant)} to the hot lane?`,
      effect: "Its requests are decided in the hot lane, in the order in which they arrived, until you unpin it. The service no longer moves it.",
      button: "Pin the variant",
      run: async () => {
        await this.#api.change("PUT", pinPath(variant));
        return `${isolated(variant)} is pinned to the hot lane.`;
      },
    });
  }

  unpin(variant) {
    return confirm({
      title: `Unpin ${isolated(variant)}?`,
      effect: "The service decides again which lane it belongs to. If few requests arrive for it, it moves to the normal lane.",
      button: "Unpin the variant",
      run: async () => {
        await this.#api.change("DELETE", pinPath(variant));
        return `${isolated(variant)} is unpinned.`;
      },
    });
  }

  async retry(request) {
    let made = null;
    const units = `${counted(request.quantity, "unit")} of ${isolated(request.variant_id)}`;
    const queued = request.kind === "set"
      ? `A new request is queued that sets the quantity of the cart ${isolated(request.cart_id)} to ${units}, whatever it holds of it by then.`
      : `A new request is queued that adds ${units} to the cart ${isolated(request.cart_id)}.`;
    await confirm({
      title: "Retry this request?",
      effect: `${queued} The failed request stays as it is.`,
      button: "Retry the request",
      run: async () => {
        made = await this.#api.change("POST", `/v1/requests/${encodeURIComponent(request.request_id)}/retry`);
        return `The request is retried as ${isolated(shortId(made.request_id))}.`;
      },
    });
    return made?.request_id ?? null;
  }

  release(reservation) {
    return confirm({
      title: "Release this hold?",
      effect: `The cart ${isolated(reservation.cart_id)} loses its ${counted(reservation.quantity, "unit")} of ${isolated(reservation.variant_id)}, and other buyers can have ${reservation.quantity === 1 ? "it" : "them"}. This cannot be undone.`,
      button: "Release the hold",
      run: async () => {
        await this.#api.change("POST", `/v1/reservations/${encodeURIComponent(reservation.reservation_id)}/release`, { reason: "operator" });
        return `The hold of the cart ${isolated(reservation.cart_id)} is released.`;
      },
    });
  }
}

function pinPath(variant) {
  return `/v1/lanes/hot/variants/${encodeURIComponent(variant)}`;
}

/**
 * A client of Holdfast: it holds units in carts, checks them out, and reads and
 * sets stocks.
 *
 * Each call that changes something has one idempotency key for all its attempts.
 * Connection errors and the statuses 429, 500, 502, 503 and 504 are tried again,
 * three times. Do not put an API key into a page: whoever opens it could use the key.
 *
 * @module
 */
import createClient, { type Client } from "openapi-fetch";
import { HoldfastError, readError } from "./error.js";
import type { components, paths } from "./schema.js";
import { type Sending, sender, sleep } from "./send.js";

export { HoldfastError, type ErrorCode, type FieldError } from "./error.js";
export type { Attempt } from "./send.js";
export type { components, operations, paths } from "./schema.js";

type Schemas = components["schemas"];

/** A stock of a variant. */
export type Stock = Schemas["Stock"];
/** A request for units, and its outcome. */
export type Request = Schemas["Request"];
/** The answer to a request that is not decided yet. */
export type Accepted = Schemas["Accepted"];
/** Units that are held for a cart, or were. */
export type Reservation = Schemas["Reservation"];
/** A cart: its reservations and requests. */
export type Cart = Schemas["Cart"];
/** What a cart can be asked to hold. */
export type Item = Schemas["AddItemBody"];
/** Settings of a stock; those left out stay as they are. */
export type StockSettings = Schemas["PutStockBody"];

/** How to reach the service. */
export interface Options extends Sending {
  /** The address of the service, such as https://holds.example.com. */
  url: string;
  /** The API key. It goes into the header Authorization only. */
  key: string;
}

/** What can be given with each call. */
export interface CallOptions {
  /** Ends the call, with the signal's reason as the error. */
  signal?: AbortSignal;
  /** Names the call: repeated with the same key it has no second effect. Random if left out. */
  idempotencyKey?: string;
  /** Is recorded with what the call changes. */
  correlationId?: string;
}

/** What can be given with a request for units. */
export interface AddOptions extends CallOptions {
  /** The customer to whom limits apply; the cart if left out. */
  customer?: string;
  /** The admission token, for a variant that needs one. */
  admissionToken?: string;
  /** For how many whole seconds the service waits for the outcome, at most 30. */
  wait?: number;
}

/** The result of a call: await it, or ask for the response with it. */
export interface Call<T> extends Promise<T> {
  /** The result with the response: its status and its header fields. */
  withResponse(): Promise<{ data: T; response: Response }>;
}

/** The outcome of a request for units. Sold out is an outcome, not an error. */
export type Outcome =
  | { status: "held"; request: Request; reservation: Reservation | null }
  | { status: "rejected"; reason: NonNullable<Request["reason"]>; request: Request }
  | { status: "pending"; requestId: string; position: number | null };

/** A request for units whose outcome can be awaited. */
export interface Reserving {
  /**
   * Waits until the request is decided, by long polls. After `timeout` milliseconds
   * (30,000 if left out) the outcome is `pending`: the request is still in line, and
   * `requests.get` reads it later. Throws the signal's reason if it ends before.
   */
  result(options?: { timeout?: number; signal?: AbortSignal }): Promise<Outcome>;
}

/** What `reserve` asks for. */
export interface Wanted extends Omit<AddOptions, "wait" | "signal"> {
  cart: string;
  variant: string;
  quantity: number;
}

/** The longest that one call waits for an outcome, in seconds. */
const longestPoll = 30;

/** A client with one key, for one service. It keeps no state between calls. */
export class Holdfast {
  readonly #api: Client<paths>;

  constructor(options: Options) {
    const { url, key, ...sending } = options;
    if (!url || !key) {
      throw new TypeError("Holdfast needs a url and a key");
    }
    this.#api = createClient<paths>({
      baseUrl: url.replace(/\/+$/, ""),
      headers: { Authorization: `Bearer ${key}` },
      fetch: sender(sending),
      querySerializer: { array: { style: "form", explode: true } },
    });
  }

  /** What shoppers do. */
  readonly carts = {
    /** Asks for units. The answer is a request that is finished, or one to wait for. */
    add: (cart: string, item: Item, options?: AddOptions): Call<Request | Accepted> =>
      result(
        this.#api.POST("/v1/carts/{cart_id}/items", {
          ...init(options),
          params: { path: { cart_id: id("cart", cart) }, header: adding(options) },
          body: item,
        }),
      ),
    /** Sets how many units of a variant the cart has. */
    set: (cart: string, variant: string, quantity: number, options?: AddOptions): Call<Request | Accepted> =>
      result(
        this.#api.PATCH("/v1/carts/{cart_id}/items/{variant_id}", {
          ...init(options),
          params: { path: { cart_id: id("cart", cart), variant_id: id("variant", variant) }, header: adding(options) },
          body: { quantity },
        }),
      ),
    /** Removes a variant from the cart, or everything. */
    remove: (cart: string, variant?: string, options?: CallOptions): Call<Schemas["Removed"]> =>
      variant === undefined
        ? result(
            this.#api.DELETE("/v1/carts/{cart_id}", {
              ...init(options),
              params: { path: { cart_id: id("cart", cart) }, header: keyed(options) },
            }),
          )
        : result(
            this.#api.DELETE("/v1/carts/{cart_id}/items/{variant_id}", {
              ...init(options),
              params: { path: { cart_id: id("cart", cart), variant_id: id("variant", variant) }, header: keyed(options) },
            }),
          ),
    /** Moves the deadlines of the cart's holds by that many seconds. */
    extend: (cart: string, seconds: number, options?: CallOptions): Call<Schemas["Extended"]> =>
      result(
        this.#api.POST("/v1/carts/{cart_id}/extend", {
          ...init(options),
          params: { path: { cart_id: id("cart", cart) }, header: keyed(options) },
          body: { seconds },
        }),
      ),
    /** Commits everything that the cart holds, or nothing. */
    checkout: (cart: string, options?: CallOptions): Call<Schemas["CheckedOut"]> =>
      result(
        this.#api.POST("/v1/carts/{cart_id}/checkout", {
          ...init(options),
          params: { path: { cart_id: id("cart", cart) }, header: keyed(options) },
        }),
      ),
    /** Reads a page of a cart. */
    get: (cart: string, options?: CallOptions & { cursor?: string }): Call<Cart> =>
      result(
        this.#api.GET("/v1/carts/{cart_id}", {
          ...init(options),
          params: { path: { cart_id: id("cart", cart) }, query: { cursor: options?.cursor }, header: correlated(options) },
        }),
      ),
  };

  /** How many units of a variant there are. */
  readonly stocks = {
    get: (variant: string, options?: CallOptions): Call<Stock> =>
      result(
        this.#api.GET("/v1/stocks/{variant_id}", {
          ...init(options),
          params: { path: { variant_id: id("variant", variant) }, header: correlated(options) },
        }),
      ),
    /** Reads up to 200 stocks at once. Unknown variants are in `unknown`. */
    some: (variants: string[], options?: CallOptions): Call<Schemas["StockPage"]> =>
      result(
        this.#api.GET("/v1/stocks", { ...init(options), params: { query: { variant_id: variants }, header: correlated(options) } }),
      ),
    /** Makes a stock, or changes the settings that are given. */
    put: (variant: string, settings: StockSettings, options?: CallOptions): Call<Stock> =>
      result(
        this.#api.PUT("/v1/stocks/{variant_id}", {
          ...init(options),
          params: { path: { variant_id: id("variant", variant) }, header: correlated(options) },
          body: settings,
        }),
      ),
    /** Adds units, or removes units with a number below 0. */
    adjust: (variant: string, delta: number, options?: CallOptions & { reason?: string }): Call<Stock> =>
      result(
        this.#api.POST("/v1/stocks/{variant_id}/adjust", {
          ...init(options),
          params: { path: { variant_id: id("variant", variant) }, header: keyed(options) },
          body: { delta, reason: options?.reason },
        }),
      ),
    delete: (variant: string, options?: CallOptions): Call<Schemas["Deleted"]> =>
      result(
        this.#api.DELETE("/v1/stocks/{variant_id}", {
          ...init(options),
          params: { path: { variant_id: id("variant", variant) }, header: keyed(options) },
        }),
      ),
    /** All stocks, page by page, in the order of their ids. */
    list: (options?: CallOptions & { group?: string; limit?: number }): AsyncIterableIterator<Stock> =>
      pages(async (cursor) => {
        const { group, limit } = options ?? {};
        const query = { group, limit, cursor };
        return await result(this.#api.GET("/v1/stocks", { ...init(options), params: { query, header: correlated(options) } }));
      }),
  };

  /** Requests for units. */
  readonly requests = {
    /** Reads a request. With `wait`, the service waits that many whole seconds for its outcome, at most 30. */
    get: (requestId: string, options?: CallOptions & { wait?: number }): Call<Request> =>
      result(
        this.#api.GET("/v1/requests/{request_id}", {
          ...init(options),
          params: { path: { request_id: id("request", requestId) }, query: { wait: options?.wait }, header: correlated(options) },
        }),
      ),
  };

  /** Units that are held, by the reservation's id. */
  readonly reservations = {
    get: (reservationId: string, options?: CallOptions): Call<Reservation> =>
      result(this.#api.GET("/v1/reservations/{reservation_id}", { ...init(options), ...reserved(reservationId, correlated(options)) })),
    /** Commits the units, or with a quantity a part of them. */
    commit: (reservationId: string, part: Schemas["PartBody"] = {}, options?: CallOptions): Call<Reservation | Schemas["CommittedPart"]> =>
      result(
        this.#api.POST("/v1/reservations/{reservation_id}/commit", {
          ...init(options),
          ...reserved(reservationId, keyed(options)),
          body: part,
        }),
      ),
    release: (reservationId: string, body: Schemas["ReleaseBody"] = {}, options?: CallOptions): Call<Reservation> =>
      result(
        this.#api.POST("/v1/reservations/{reservation_id}/release", {
          ...init(options),
          ...reserved(reservationId, keyed(options)),
          body,
        }),
      ),
    extend: (reservationId: string, seconds: number, options?: CallOptions): Call<Reservation> =>
      result(
        this.#api.POST("/v1/reservations/{reservation_id}/extend", {
          ...init(options),
          ...reserved(reservationId, keyed(options)),
          body: { seconds },
        }),
      ),
    history: (reservationId: string, options?: CallOptions): Call<Schemas["History"]> =>
      result(
        this.#api.GET("/v1/reservations/{reservation_id}/history", { ...init(options), ...reserved(reservationId, correlated(options)) }),
      ),
  };

  /** Tokens with which customers may ask for variants that need one. */
  readonly admissions = {
    mint: (body: Schemas["MintAdmissionBody"], options?: CallOptions): Call<Schemas["Admission"]> =>
      result(this.#api.POST("/v1/admissions", { ...init(options), params: { header: keyed(options) }, body })),
  };

  /** Asks for units of a variant, and waits for the outcome: `await client.reserve({…}).result()`. */
  reserve(wanted: Wanted): Reserving {
    const { cart, variant, quantity, ...options } = wanted;
    const key = options.idempotencyKey ?? crypto.randomUUID();
    return {
      result: async ({ timeout = 30_000, signal } = {}) => {
        const until = Date.now() + timeout;
        const wait = () => Math.max(0, Math.min(longestPoll, Math.floor((until - Date.now()) / 1000)));
        const item = { variant_id: variant, quantity };
        let seen: Request | Accepted = await this.carts.add(cart, item, { ...options, idempotencyKey: key, signal, wait: wait() });
        for (;;) {
          const outcome = outcomeOf(seen);
          if (outcome.status !== "pending" || Date.now() >= until) {
            return outcome;
          }
          if (wait() === 0) {
            await sleep(Math.min(50, until - Date.now()), signal);
          }
          seen = await this.requests.get(outcome.requestId, { wait: wait(), signal, correlationId: options.correlationId });
        }
      },
    };
  }
}

/** outcomeOf is what is known of a request. */
function outcomeOf(seen: Request | Accepted): Outcome {
  if ("cart_id" in seen && seen.status === "done") {
    return { status: "held", request: seen, reservation: seen.reservation ?? null };
  }
  if ("cart_id" in seen && seen.status === "failed" && seen.reason) {
    return { status: "rejected", reason: seen.reason, request: seen };
  }
  return { status: "pending", requestId: seen.request_id, position: seen.position ?? null };
}

/** Items of all pages. */
async function* pages<T>(read: (cursor?: string) => Promise<{ items: T[]; next_cursor: string | null }>): AsyncIterableIterator<T> {
  let cursor: string | undefined;
  do {
    const page = await read(cursor);
    yield* page.items;
    cursor = page.next_cursor ?? undefined;
  } while (cursor !== undefined);
}

/** result is the body of a response, or throws its problem. */
function result<T>(calling: Promise<{ data?: T; error?: unknown; response: Response }>): Call<NonNullable<T>> {
  const answered = calling.then(({ data, error, response }) => {
    if (error !== undefined || !response.ok) {
      throw readError(error, response);
    }
    return { data: data as NonNullable<T>, response };
  });
  return Object.assign(
    answered.then(({ data }) => data),
    { withResponse: () => answered },
  );
}

/**
 * id refuses an id that a URL can't have as a segment: "." and ".." would name
 * another path, however they are written.
 */
function id(what: string, value: string): string {
  if (value === "" || /^\.+$/.test(value)) {
    throw new HoldfastError({ code: "invalid", status: 422, detail: `${what} must not be empty or only dots`, errors: [{ field: `${what}_id`, message: "must not be empty or only dots" }] });
  }
  return value;
}

const init = (options?: CallOptions) => ({ signal: options?.signal ?? null });

const correlated = (options?: CallOptions) => ({ "X-Correlation-Id": options?.correlationId });

const keyed = (options?: CallOptions) => ({ ...correlated(options), "Idempotency-Key": options?.idempotencyKey });

const adding = (options?: AddOptions) => ({
  ...keyed(options),
  "Customer-Id": options?.customer,
  "Admission-Token": options?.admissionToken,
  Prefer: options?.wait ? `wait=${Math.floor(options.wait)}` : undefined,
});

const reserved = <H>(reservationId: string, header: H) => ({ params: { path: { reservation_id: id("reservation", reservationId) }, header } });

// A shop's server in TypeScript. Pages call it, and it has the key of Holdfast.
//
//   POST /carts/{cart}  {"variant":"shirt-m","quantity":1}   holds units
//   POST /carts/{cart}/order                                  buys what the cart holds
//   GET  /products                                            prices and what is left
import { createServer } from "node:http";
import { Holdfast, HoldfastError } from "@holdfast/client";

const { HOLDFAST_URL, HOLDFAST_KEY, PORT = "3000" } = process.env;
if (!HOLDFAST_URL || !HOLDFAST_KEY) {
  console.error('Set HOLDFAST_URL and HOLDFAST_KEY: make run, then eval "$(bin/holdfast env)".');
  process.exit(1);
}
const holdfast = new Holdfast({ url: HOLDFAST_URL, key: HOLDFAST_KEY });

/** The shop's own data. Prices and orders are no business of Holdfast's. */
const prices: Record<string, number> = { "shirt-m": 2500, "shirt-l": 2500 };
const orders: { cart: string; total: number }[] = [];

/** An answer to a page: a status and a body. */
type Answer = [status: number, body: object];

async function products(): Promise<Answer> {
  const { items } = await holdfast.stocks.some(Object.keys(prices));
  return [200, items.map((s) => ({ variant: s.variant_id, price: prices[s.variant_id], left: Math.max(0, s.available) }))];
}

async function add(cart: string, variant: string, quantity: number): Promise<Answer> {
  const outcome = await holdfast.reserve({ cart, variant, quantity }).result({ timeout: 10_000 });
  switch (outcome.status) {
    case "held":
      return [200, { held: quantity, until: outcome.reservation?.expires_at }];
    case "rejected": // sold out is an answer, and not an error
      return [409, { refused: outcome.reason }];
    case "pending":
      return [202, { inLine: outcome.position, request: outcome.requestId }];
  }
}

async function order(cart: string): Promise<Answer> {
  // The order's key is the cart's, so a second click buys nothing more.
  const { committed } = await holdfast.carts.checkout(cart, { idempotencyKey: `order-of-${cart}` });
  const total = committed.reduce((sum, r) => sum + r.quantity * (prices[r.variant_id] ?? 0), 0);
  if (!orders.some((o) => o.cart === cart)) {
    orders.push({ cart, total });
  }
  return [200, { total }];
}

async function answer(method: string, path: string, body: string): Promise<Answer> {
  const [collection, cart, verb] = path.slice(1).split("/").map(decodeURIComponent);
  if (method === "GET" && collection === "products") {
    return products();
  }
  if (method === "POST" && collection === "carts" && cart && !verb) {
    const { variant, quantity } = JSON.parse(body) as { variant: string; quantity: number };
    return add(cart, variant, quantity);
  }
  if (method === "POST" && collection === "carts" && cart && verb === "order") {
    return order(cart);
  }
  return [404, { error: "there is no such page" }];
}

const server = createServer(async (request, response) => {
  let body = "";
  for await (const chunk of request.setEncoding("utf8")) {
    body += chunk;
  }
  let [status, content]: Answer = [500, { error: "the shop has a fault" }];
  try {
    [status, content] = await answer(request.method ?? "", request.url ?? "", body);
  } catch (e) {
    if (e instanceof HoldfastError && e.status >= 400 && e.status < 500) {
      [status, content] = [e.status, { refused: e.code }]; // such as cart_empty, or a field that is not valid
    } else if (e instanceof SyntaxError) {
      [status, content] = [400, { error: "the body is no JSON" }];
    } else {
      console.error(e);
    }
  }
  response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(content));
});

for (const variant of Object.keys(prices)) {
  await holdfast.stocks.put(variant, { stock: 10, max_per_cart: 5 });
}
server.listen(Number(PORT), "127.0.0.1", () => console.log(`http://localhost:${(server.address() as { port: number }).port}/products`));

// Compiled, not run: what a misspelt name does.
import { Holdfast, HoldfastError } from "../src/index.js";

const client = new Holdfast({ url: "http://localhost:8080", key: "hf_key" });
const stock = await client.stocks.get("shirt");
export const available: number = stock.available;
// @ts-expect-error: no such field
export const misspelt = stock.availabel;

const outcome = await client.reserve({ cart: "c", variant: "shirt", quantity: 1 }).result();
if (outcome.status === "rejected") {
  export_(outcome.reason === "out_of_stock");
  // @ts-expect-error: no such reason
  export_(outcome.reason === "out_of_stok");
} else if (outcome.status === "held") {
  export_(outcome.request.cart_id === "c");
}
try {
  await client.carts.checkout("c");
} catch (error) {
  if (error instanceof HoldfastError) {
    export_(error.code === "over_limit");
    // @ts-expect-error: no such code
    export_(error.code === "over_limt");
  }
}
// @ts-expect-error: a quantity is a number
await client.carts.add("c", { variant_id: "shirt", quantity: "1" });

function export_(_: boolean): void {}

// What the page says. The API's codes and reasons are for programs.

export const units = (n) => (n === 1 ? "1 pair" : `${n} pairs`);

const keeps = (held) => (held === 0 ? "Your cart is empty." : `Your cart still holds ${units(held)}.`);

// reasons say why a request failed. held is what the cart holds after that.
const reasons = {
  out_of_stock: (held, quantity) => {
    if (held > 0) return `There are not that many left. ${keeps(held)}`;
    return quantity === 1 ? "Sold out. Nothing was added to your cart." : "There are not that many left. Nothing was added to your cart.";
  },
  not_on_sale: () => "This is not on sale now.",
  quantity_not_allowed: (held) => `This is not sold in that quantity. ${keeps(held)}`,
  limit_exceeded: (held) => `That is more than a cart may hold at one time. ${keeps(held)}`,
  part_of_kit: () => "There is a set in your cart, which has a pair too. Remove it to have fewer pairs.",
  unknown_variant: () => "This product is not on sale.",
  unknown_kit: () => "This set is not on sale.",
  unknown_allotment: (held) => `These are no longer set aside for you. ${keeps(held)}`,
  cancelled: (held) => `You left the queue. ${keeps(held)}`,
  expired_in_queue: (held) => `The queue was too long for your request. Please try again. ${keeps(held)}`,
  internal_error: (held) => `We could not handle your request. Please try again. ${keeps(held)}`,
};

export function failureText(request, held) {
  const reason = reasons[request.reason] ?? reasons.internal_error;
  return reason(held, request.quantity);
}

// problems say why a call was refused.
const problems = {
  hold_expired: "Your time ran out before the checkout, and your pairs went back on sale. You can add them again while there are any left.",
  requests_pending: "Your request is still in the queue. Check out when it is decided.",
  cart_empty: "Your cart is empty.",
  checkout_in_progress: "A checkout of your cart has begun already. Finish it first.",
  lifetime_exceeded: "Your pairs cannot be held any longer. Please check out.",
  conflicting_state: "Your cart has changed meanwhile.",
  over_limit: "Too many people are in the queue. Please try again in a minute.",
  over_budget: "You have tried too often. Please wait a minute.",
  overloaded: "The shop is very busy. Please try again in a minute.",
  admission_required: "You need an invitation for this product.",
  unauthorized: "The shop was restarted. Please reload this page.",
};

export function problemText(error) {
  if (error.status === undefined) return "The shop does not answer. Check your connection and try again.";
  return problems[error.code] ?? "That did not work. Please try again.";
}

// queueText says where in the queue a request is. The API knows the position in
// the hot lane only.
export function queueText(position) {
  if (position === null || position === undefined) return "Queued";
  if (position === 0) return "Queued, you are next";
  if (position >= 1000) return "Queued, more than 1,000 ahead of you";
  return `Queued, ${position} ahead of you`;
}

// lineText says where in the waiting list a request is.
export function lineText(position) {
  if (position === null || position === undefined) return "On the waiting list";
  if (position === 1) return "On the waiting list, you are next";
  if (position >= 10_000) return "On the waiting list, behind 10,000 or more";
  return `On the waiting list, place ${position}`;
}

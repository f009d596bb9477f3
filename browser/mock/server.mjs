// Serves the dashboard's files and an imitation of the calls that it makes.
import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { WebSocketServer } from "ws";

const base = fileURLToPath(new URL("../../dashboard/static/", import.meta.url));
const types = { html: "text/html; charset=utf-8", js: "text/javascript", css: "text/css", svg: "image/svg+xml", txt: "text/plain" };
const csp = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const key = "hf_mock";
const lanes = { hot: { paused: false, rate_cap: null }, normal: { paused: false, rate_cap: 5 } };
const started = Date.now();
const variant = (variant_id, stock, reserved, rest = {}) => ({ variant_id, stock, reserved, available: stock - reserved, tracked: true, backorder: false, lane: "normal", pinned: false, rate_per_second: 1.2, sold_out: stock - reserved <= 0, ...rest });
const variants = [
  variant("sneaker-x", 500, 500, { lane: "hot", rate_per_second: 212 }),
  variant("sneaker-y", 800, 412, { lane: "hot", pinned: true, rate_per_second: 44 }),
  variant("hoodie-m", 120, 31, { rate_per_second: 13 }), variant("hoodie-l", 120, 7),
  variant("<script>alert(1)</script>", 10, 3), variant("poster", 40, 0, { rate_per_second: 0 }),
  variant("wallpaper", 0, 0, { tracked: false, available: 0, sold_out: false, rate_per_second: 3 }),
];
const id = (n) => `01a206aa-1568-7b4c-b587-${String(n).padStart(12, "0")}`;
const failed = Array.from({ length: 9 }, (_, i) => ({ request_id: id(i), cart_id: `cart-${i}`, variant_id: i % 3 ? "sneaker-x" : "hoodie-m", quantity: 1 + (i % 2), reason: ["out_of_stock", "out_of_stock", "limit_exceeded", "internal_error", "unknown_variant"][i % 5], failed_at: new Date(started - i * 7000).toISOString(), retried_by: i === 4 ? id(77) : null }));
let expiring = Array.from({ length: 8 }, (_, i) => ({ reservation_id: id(100 + i), cart_id: `cart-${40 + i}`, variant_id: i % 2 ? "sneaker-x" : "hoodie-m", quantity: 1, expires_at: new Date(started + 20000 + i * 17000).toISOString() }));
function overview() {
  const t = (Date.now() - started) / 1000;
  const n = lanes.normal;
  return {
    at: new Date().toISOString(),
    lanes: [
      { lane: "hot", depth: lanes.hot.paused ? 900 : 14, oldest_seconds: 0.2, arrivals_per_second: 256 + 10 * Math.sin(t), decided_per_second: lanes.hot.paused ? 0 : 255, ...lanes.hot, slow: lanes.hot.paused ? "Paused." : null },
      { lane: "normal", depth: Math.round(1204 + 26 * t), oldest_seconds: 46 + t, arrivals_per_second: 31, decided_per_second: n.paused ? 0 : Math.min(31, n.rate_cap ?? 31), ...n, slow: n.paused ? "Paused." : n.rate_cap && n.rate_cap < 31 ? `Capped at ${n.rate_cap} per second; 31 per second arrive.` : null },
    ],
    variants, expiring: expiring.filter((r) => Date.parse(r.expires_at) > Date.now() - 3000), failed,
    sweeps: [{ name: "expiry", last_success_at: new Date(Date.now() - 2000).toISOString(), lag_seconds: 0.4 }, { name: "purge", last_success_at: null, lag_seconds: 0 }],
    subscriptions: [{ name: "projections", lag: 12, lag_seconds: 0.1, failures: 0, last_error: null }, { name: "webhooks", lag: 5031, lag_seconds: 94, failures: 3, last_error: "POST https://shop.example/hook: 503" }],
  };
}
const wave = (at, f) => Math.round(f * (1 + Math.sin(at / 90000)) * 50);
const rates = (from) => Array.from({ length: Math.floor((Date.now() - from) / 5000) }, (_, i) => from + i * 5000).map((at) => ({ at: new Date(Math.floor(at / 5000) * 5000).toISOString(), held: wave(at, 1), rejected: wave(at, 0.8), failed: at % 13 === 0 ? 4 : 0, committed: wave(at, 0.4), released: 4, expired: 6 }));
const latencies = (from) => rates(from).map(({ at }) => ({ at, count: 40, p50_ms: 5 + Math.random() * 3, p95_ms: 20 + Math.random() * 9, p99_ms: 40 + Math.random() * 30, max_ms: 90 }));
const quarter = 15 * 60 * 1000;

const server = createServer((request, response) => {
  let body = "";
  request.on("data", (chunk) => (body += chunk));
  request.on("end", () => {
    const url = new URL(request.url, "http://mock");
    const send = (status, value, headers = {}) => response.writeHead(status, { "Content-Type": status < 400 ? "application/json" : "application/problem+json", ...headers }).end(JSON.stringify(value));
    if (url.pathname.startsWith("/ops/")) {
      const name = url.pathname === "/ops/" ? "index.html" : url.pathname.slice(5);
      try {
        response.writeHead(200, { "Content-Type": types[name.split(".").pop()], "Content-Security-Policy": csp, "X-Content-Type-Options": "nosniff" }).end(readFileSync(base + name));
      } catch { send(404, {}); }
      return;
    }
    if (request.headers.authorization !== `Bearer ${key}`) return send(401, { code: "unauthorized", detail: "The key is not valid." });
    const path = url.pathname.split("/").map(decodeURIComponent);
    if (url.pathname === "/v1/ops/overview") return send(200, overview());
    if (url.pathname === "/v1/live/tickets") return send(201, { ticket: "t", expires_at: new Date().toISOString() });
    if (url.pathname === "/v1/ops/search") return send(200, { q: url.searchParams.get("q"), items: [{ kind: "variant", id: "sneaker-x", summary: "500 in stock" }, { kind: "variant", id: "sneaker-y", summary: "800 in stock" }] });
    if (url.pathname === "/v1/ops/history") {
      const [kind, of] = [url.searchParams.get("kind"), url.searchParams.get("id")];
      const now = kind === "request" ? { request_id: of, status: "failed", reason: "out_of_stock", cart_id: "cart-1", variant_id: "sneaker-x", quantity: 1 } : { [`${kind}_id`]: of, status: "held", cart_id: "cart-1", variant_id: "<script>alert(1)</script>", quantity: 2, expires_at: new Date().toISOString() };
      return send(200, { kind, id: of, now, more: false, events: [
        { audit_id: 1, at: new Date(started - 60000).toISOString(), action: "reservation.held", target_id: id(3), actor: "user hf_ab", reason: "", correlation_id: "c-1", before: null, after: { quantity: 2, variant_id: "sneaker-x", status: "held" } },
        { audit_id: 2, at: new Date(started).toISOString(), action: "reservation.released", target_id: id(3), actor: "user hf_ab", reason: "operator", correlation_id: "c-2", before: { quantity: 2 }, after: { quantity: 2, variant_id: "sneaker-x", status: "released" } }] });
    }
    if (path[2] === "lanes" && path[4] === "variants") {
      const v = variants.find((x) => x.variant_id === path[5]);
      v.pinned = request.method === "PUT"; v.lane = v.pinned ? "hot" : "normal";
      return send(200, { variant_id: v.variant_id, lane: v.lane, pinned: v.pinned });
    }
    if (path[2] === "lanes") return send(200, Object.assign(lanes[path[3]], JSON.parse(body)));
    if (path[4] === "retry") {
      const r = failed.find((x) => x.request_id === path[3]);
      if (r.retried_by) return send(409, { code: "conflicting_state", detail: "The request is retried already." });
      r.retried_by = id(500);
      return send(202, { request_id: r.retried_by, status: "queued" });
    }
    if (path[4] === "release") { expiring = expiring.filter((r) => r.reservation_id !== path[3]); return send(200, {}); }
    send(404, { code: "not_found", detail: "There is no such thing." });
  });
});
new WebSocketServer({ server }).on("connection", (socket) => {
  const versions = {};
  const send = (channel, event, payload) => socket.send(JSON.stringify({ channel, event, version: (versions[channel] = (versions[channel] ?? 0) + 1), payload }));
  socket.on("message", (m) => {
    const { subscribe } = JSON.parse(m);
    if (subscribe === "projection.outcomes.rate.all") send(subscribe, "snapshot", { bucket_seconds: 5, buckets: rates(Date.now() - quarter) });
    else if (subscribe === "projection.outcomes.latency.all") send(subscribe, "snapshot", { bucket_seconds: 5, buckets: latencies(Date.now() - quarter) });
    else if (subscribe) send(subscribe, "snapshot", overview());
  });
  const timers = [setInterval(() => send("ops.overview", "snapshot", overview()), 1000), setInterval(() => {
    send("projection.outcomes.rate.all", "delta", { bucket_seconds: 5, buckets: rates(Date.now() - 10000) });
    send("projection.outcomes.latency.all", "delta", { bucket_seconds: 5, buckets: latencies(Date.now() - 10000) });
  }, 2500)];
  socket.on("close", () => timers.forEach(clearInterval));
});
server.listen(Number(process.argv[2] ?? 0), "127.0.0.1", () => console.log(`ready url=http://127.0.0.1:${server.address().port} key=${key}`));

// The page: settings, clock, cart and view put together.

import { Api } from "./api.js";
import { ServerClock } from "./clock.js";
import { Shop } from "./shop.js";
import { View } from "./view.js";

const TICK = 250; // the countdowns show whole seconds

async function start() {
  const clock = new ServerClock();
  const response = await clock.fetch("config.json", { cache: "no-store" });
  if (!response.ok) throw new Error(`the settings are not available: ${response.status}`);
  const settings = await response.json();

  const view = new View(settings, clock);
  const shop = new Shop(new Api(clock, settings.key), settings, (state) => view.render(state));
  view.connect(shop);
  view.render(shop.state);

  setInterval(() => {
    if (view.tick()) shop.refresh(); // the service decides whether the hold has ended
  }, TICK);

  // A hidden tab does not keep a connection for what is left: a browser has six
  // per server over HTTP/1.1.
  let watching = null;
  const onVisibility = () => {
    watching?.abort();
    watching = null;
    if (document.visibilityState === "hidden") return;
    watching = new AbortController();
    shop.watch(watching.signal);
    shop.refresh();
  };
  document.addEventListener("visibilitychange", onVisibility);
  onVisibility();
}

start().catch(() => {
  document.getElementById("name").textContent = "The shop is closed at the moment";
});

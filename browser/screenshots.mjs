// Takes the screenshots of the docs, after some minutes of a sale: the charts
// need something to show.

import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { closePage, openPage, sizes, startBrowser, startProgram } from "./harness.mjs";
import { capNormalLane, prepareSale, runSale } from "./sale.mjs";

const folder = fileURLToPath(new URL("../docs/images/", import.meta.url));
const seconds = { before: 200, capped: 100, between: 8 };
const pictures = {
  light: { viewport: sizes.desktop },
  dark: { viewport: sizes.desktop, colorScheme: "dark" },
  phone: { viewport: sizes.phone, deviceScaleFactor: 2 },
};

const [program, browser] = await Promise.all([startProgram(), startBrowser()]);
await prepareSale(program, 310);
const sale = runSale(program);
// One hold after the other, so that they expire one after the other.
let fans = 0;
const fan = setInterval(() => program.add(`fan-${++fans}`, "poster", 1 + (fans % 2)), seconds.between * 1000);
console.log(`The sale runs for ${seconds.before + seconds.capped} s.`);
await sleep(seconds.before * 1000);
await capNormalLane(program);
await sleep(seconds.capped * 1000);
for (const [name, options] of Object.entries(pictures)) {
  const page = await openPage(browser, `${program.url}/ops/#key=${program.key}`, options);
  await page.locator("#connection[data-state=live]").waitFor();
  await page.locator("#latency .summary", { hasText: "half within" }).waitFor();
  await page.screenshot({ path: `${folder}dashboard-${name}.png`, fullPage: name !== "phone" });
  await closePage(page);
}
clearInterval(fan);
await sale.stop();
await browser.close();
await program.stop();

// Takes the screenshots of the docs, after some minutes of a sale: the charts
// need something to show.

import { fileURLToPath } from "node:url";
import { closePage, openPage, sizes, startBrowser, startProgram } from "./harness.mjs";
import { prepareSale, runSale } from "./sale.mjs";

const folder = fileURLToPath(new URL("../docs/images/", import.meta.url));
const saleSeconds = 200;
const pictures = {
  light: { viewport: sizes.desktop },
  dark: { viewport: sizes.desktop, colorScheme: "dark" },
  phone: { viewport: sizes.phone, deviceScaleFactor: 2 },
};

const [program, browser] = await Promise.all([startProgram(), startBrowser()]);
await prepareSale(program, { holdSeconds: 75 });
const sale = await runSale(program, { perSecond: 40 });
console.log(`The sale runs for ${saleSeconds} s.`);
await new Promise((resolve) => setTimeout(resolve, saleSeconds * 1000));
for (const [name, options] of Object.entries(pictures)) {
  const page = await openPage(browser, `${program.url}/ops/#key=${program.key}`, options);
  await page.locator("#connection[data-state=live]").waitFor();
  await page.locator("#latency .summary", { hasText: "half within" }).waitFor();
  await page.screenshot({ path: `${folder}dashboard-${name}.png`, fullPage: name !== "phone" });
  await closePage(page);
}
await sale.stop();
await browser.close();
await program.stop();

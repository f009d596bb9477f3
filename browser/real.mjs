import { startProgram, startBrowser, openPage, sizes } from "./harness.mjs";
import { prepareSale, runSale } from "./sale.mjs";
const [p, b] = await Promise.all([startProgram(), startBrowser()]);
await prepareSale(p); const s = await runSale(p);
await new Promise(r => setTimeout(r, Number(process.argv[2] ?? 40) * 1000));
for (const [name, o] of Object.entries({ light: {}, phone: { viewport: sizes.phone } })) {
  const page = await openPage(b, `${p.url}/ops/#key=${p.key}`, o);
  await page.waitForSelector("#connection[data-state=live]"); await page.waitForTimeout(6000);
  await page.screenshot({ path: `/tmp/real-${name}.png`, fullPage: true });
  console.log(name, page.problems); await page.context().close();
}
console.log(JSON.stringify(await p.call("GET", "/v1/ops/overview")).slice(0, 6000));
await s.stop(); await b.close(); await p.stop();

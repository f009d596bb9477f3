import { spawn } from "node:child_process";
import { startBrowser, openPage, assertAccessible, assertNoSidewaysScroll, sizes } from "./harness.mjs";
const child = spawn("node", ["mock/server.mjs", "8399"], { stdio: ["ignore", "pipe", "inherit"] });
await new Promise((r) => child.stdout.once("data", r));
const b = await startBrowser();
const url = "http://127.0.0.1:8399/ops/#key=hf_mock";
for (const [name, o] of Object.entries({ light: {}, dark: { colorScheme: "dark" }, phone: { viewport: sizes.phone, deviceScaleFactor: 2 } })) {
  const page = await openPage(b, url, o);
  await page.waitForSelector("#connection[data-state=live]");
  await page.waitForTimeout(1500);
  await page.screenshot({ path: `/tmp/shot-${name}.png`, fullPage: true });
  await assertAccessible(page, name).catch((e) => console.log(String(e)));
  await assertNoSidewaysScroll(page, name).catch((e) => console.log(String(e)));
  if (name !== "dark") {
    await page.fill("#search-for", "x"); await page.press("#search-for", "Enter");
    await page.waitForSelector(".results");
    await page.click(".results a"); await page.waitForSelector(".events");
    await page.screenshot({ path: `/tmp/shot-drawer-${name}.png` });
    await assertAccessible(page, name + " drawer").catch((e) => console.log(String(e)));
    await page.keyboard.press("Escape");
    await page.click("#lanes li:last-child button:nth-child(2)"); await page.waitForTimeout(200);
    await page.screenshot({ path: `/tmp/shot-confirm-${name}.png` });
    await assertAccessible(page, name + " confirm").catch((e) => console.log(String(e)));
  }
  console.log(name, page.problems);
  await page.context().close();
}
const page = await openPage(b, url.split("#")[0]);
await page.waitForTimeout(300);
await page.screenshot({ path: `/tmp/shot-signin.png` });
await assertAccessible(page, "sign in").catch((e) => console.log(String(e)));
console.log(page.problems, await page.evaluate(() => performance.getEntriesByType("resource").map(e => [e.name.split("/").pop(), e.decodedBodySize])));
await b.close(); child.kill();

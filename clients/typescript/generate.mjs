// Writes src/schema.ts from docs/openapi.json, with the hash of the document in its
// first line.
import { createHash } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import openapiTS, { astToString } from "openapi-typescript";

const document = new URL("../../docs/openapi.json", import.meta.url);
const hash = createHash("sha256").update(await readFile(document)).digest("hex");
const types = astToString(await openapiTS(document));
await writeFile(new URL("src/schema.ts", import.meta.url), `// docs/openapi.json sha256 ${hash}\n\n${types}`);

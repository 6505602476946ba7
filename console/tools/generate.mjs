// Generates the types and the table of operations from the OpenAPI document.
// Usage: node tools/generate.mjs openapi.json FOLDER
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import openapiTS, { astToString } from "openapi-typescript";

const [source, folder] = process.argv.slice(2);
const document = JSON.parse(readFileSync(source, "utf-8"));
const types = await openapiTS(document, { defaultNonNullable: false, emptyObjectsUnknown: true });

const table = {};
for (const [path, methods] of Object.entries(document.paths))
  for (const [method, operation] of Object.entries(methods)) {
    const repeatable = operation.parameters?.some((each) => each.name === "Idempotency-Key") ?? false;
    table[operation.operationId] = [method.toUpperCase(), path, operation["x-scope"], repeatable ? 1 : 0];
  }

mkdirSync(folder, { recursive: true });
writeFileSync(`${folder}/schema.d.ts`, astToString(types));
writeFileSync(
  `${folder}/operations.ts`,
  `/** Method, path, scope, and whether it takes an Idempotency-Key. */\n` +
    `export const OPERATIONS: Record<string, readonly [string, string, string, 0 | 1]> = ${JSON.stringify(table, null, 1)};\n`,
);

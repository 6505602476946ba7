/** What a form needs to know of a JSON schema. */
import type { Json } from "../api/types";

export interface Schema {
  type?: string | string[];
  title?: string;
  description?: string;
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  enum?: Json[];
  const?: Json;
  default?: Json;
  anyOf?: Schema[];
  oneOf?: Schema[];
  $ref?: string;
  $defs?: Record<string, Schema>;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  format?: string;
  additionalProperties?: boolean | Schema;
}

export type FieldKind = "choice" | "boolean" | "number" | "integer" | "text" | "object" | "list" | "json";

/** Resolve references into the root's `$defs`, and `X | null` to X. */
export function resolve(schema: Schema, root: Schema): { schema: Schema; isNullable: boolean } {
  let found = schema;
  let isNullable = false;
  for (let depth = 0; depth < 8; depth++) {
    const name = found.$ref?.match(/^#\/\$defs\/(.+)$/)?.[1];
    const target = name === undefined ? undefined : root.$defs?.[decodeURIComponent(name)];
    const choices = found.anyOf ?? found.oneOf;
    const others = choices?.filter((each) => each.type !== "null");
    if (target) found = { ...target, ...(found.description ? { description: found.description } : {}) };
    else if (choices && others?.length === 1) {
      isNullable ||= others.length < choices.length;
      const { anyOf: _, oneOf: __, ...rest } = found;
      found = { ...others[0]!, ...rest };
    } else break;
  }
  if (Array.isArray(found.type)) {
    const types = found.type.filter((each) => each !== "null");
    isNullable ||= types.length < found.type.length;
    if (types.length === 1) found = { ...found, type: types[0]! };
  }
  return { schema: found, isNullable };
}

/** The kind of field for a resolved schema; `json` for what no other kind can show. */
export function kindOf(schema: Schema, depth = 0): FieldKind {
  if (schema.enum?.every((each) => typeof each !== "object")) return "choice";
  switch (schema.type) {
    case "boolean":
    case "number":
    case "integer":
      return schema.type;
    case "string":
      return "text";
    case "object":
      return schema.properties && depth < 4 ? "object" : "json";
    case "array":
      return schema.items && depth < 4 ? "list" : "json";
    default:
      return "json";
  }
}

/** A value to begin with. */
export function initial(schema: Schema, root: Schema): Json {
  const { schema: found, isNullable } = resolve(schema, root);
  if (found.default !== undefined) return structuredClone(found.default);
  if (found.const !== undefined) return found.const;
  if (isNullable) return null;
  switch (kindOf(found)) {
    case "choice":
      return found.enum![0] ?? null;
    case "boolean":
      return false;
    case "number":
    case "integer":
      return found.minimum ?? 0;
    case "text":
      return "";
    case "list":
      return [];
    case "object": {
      const required = (found.required ?? []).filter((name) => found.properties![name]);
      return Object.fromEntries(required.map((name) => [name, initial(found.properties![name]!, root)]));
    }
    default:
      return found.type === "array" ? [] : found.type === "object" ? {} : null;
  }
}

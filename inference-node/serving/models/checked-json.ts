/**
 * Checks JSON files against a JSON Schema (draft 7). An error names file and field, and completes
 * "must be" with the schema's `description`.
 */
import assert from 'node:assert/strict';
import { Ajv, type ErrorObject, type SchemaObject } from 'ajv';
import { ModelError } from './model-error.ts';

/** `verbose` gives an error its schema. The meta-schema would take 0.1 s of each start. */
const ajv = new Ajv({ verbose: true, meta: false, validateSchema: false });

/**
 * A null field counts as missing.
 * @throws ModelError `manifest`, for the first fault
 */
export function parseChecked<Value>(text: string, file: string, schema: SchemaObject): Value {
  let value: unknown;
  try {
    value = JSON.parse(text, (_, member: unknown) => member ?? undefined);
  } catch (error) {
    throw new ModelError('manifest', `${file}: not JSON: ${(error as Error).message}`, error);
  }
  if (ajv.validate<Value>(schema, value)) return value;
  const [error] = ajv.errors ?? [];
  assert(error, 'a value that is not valid has an error');
  throw schemaError(file, error);
}

export function fieldError(file: string, field: string, expected: string): ModelError {
  return new ModelError('manifest', `${file}: ${field} ${expected}`);
}

const EXPECTED: Readonly<Record<string, string>> = {
  required: 'is missing',
  additionalProperties: 'is not a known field',
};

function schemaError(file: string, error: ErrorObject): ModelError {
  const { keyword, instancePath, params, parentSchema } = error;
  const field = fieldPath(instancePath, params.missingProperty ?? params.additionalProperty);
  return fieldError(file, field, EXPECTED[keyword] ?? `must be ${parentSchema?.description}`);
}

/** @param pointer JSON pointer (RFC 6901) */
function fieldPath(pointer: string, field?: string): string {
  const names = pointer.split('/').slice(1);
  const path = names.map(name => name.replaceAll('~1', '/').replaceAll('~0', '~'));
  if (field !== undefined) path.push(field);
  const parts = path.map(name => {
    if (/^\d+$/.test(name)) return `[${name}]`;
    return /^\w+$/.test(name) ? `.${name}` : `[${JSON.stringify(name)}]`;
  });
  return parts.join('').replace(/^\./, '') || 'the whole';
}

/** An object with exactly the fields of `Value`; those in `optional` may be missing. */
export function fields<Value>(
  properties: Readonly<Record<keyof Value & string, SchemaObject>>,
  optional: readonly (keyof Value)[] = [],
): SchemaObject {
  const names = Object.keys(properties) as (keyof Value)[];
  const required = names.filter(name => !optional.includes(name));
  return { ...mapOf({}), properties, required, additionalProperties: false };
}

export function byType(kinds: Readonly<Record<string, SchemaObject>>): SchemaObject {
  const properties = { type: oneOf(Object.keys(kinds)) };
  const allOf = Object.entries(kinds).map(([type, kind]) => ({
    if: { required: ['type'], properties: { type: { const: type } } },
    // biome-ignore lint/suspicious/noThenProperty: JSON Schema's own word
    then: kind,
  }));
  return { ...mapOf({}), required: ['type'], properties, allOf };
}

export function mapOf(values: SchemaObject): SchemaObject {
  return { type: 'object', additionalProperties: values, description: 'an object' };
}

export function list(items: SchemaObject): SchemaObject {
  return { type: 'array', items, minItems: 1, description: 'a list, not empty' };
}

export function tuple(count: number, items: SchemaObject, description: string): SchemaObject {
  return { type: 'array', items, minItems: count, maxItems: count, description };
}

export const NUMBER: SchemaObject = { type: 'number', description: 'a number' };

export const SHARE: SchemaObject = {
  ...{ type: 'number', minimum: 0, maximum: 1 },
  description: 'a number from 0 to 1',
};

export function text(form = /^[^\r\n]+$/): SchemaObject {
  const pattern = form.source;
  return { type: 'string', pattern, description: `a string that matches ${pattern}` };
}

export function oneOf(choices: readonly string[]): SchemaObject {
  return { enum: choices, description: `one of ${choices.join(', ')}` };
}

export function wholeNumber(minimum: number, maximum: number): SchemaObject {
  const description = `a whole number from ${minimum} to ${maximum}`;
  return { type: 'integer', minimum, maximum, description };
}

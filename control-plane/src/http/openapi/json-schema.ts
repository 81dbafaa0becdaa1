/** The pieces that the JSON Schemas (2020-12) of the OpenAPI document are made of. */

export type JsonSchema = { readonly [keyword: string]: unknown };

export const text: JsonSchema = { type: 'string' };
export const count: JsonSchema = { type: 'integer', minimum: 0 };
export const uri: JsonSchema = { type: 'string', format: 'uri' };
export const time: JsonSchema = {
  type: 'string',
  format: 'date-time',
  description: 'ISO 8601 in UTC.',
  examples: ['2026-05-04T09:30:00.000Z'],
};
export const noTime: JsonSchema = { type: 'null', description: 'Not yet.' };
export const timeOrNone: JsonSchema = { ...time, type: ['string', 'null'] };
export const uuid: JsonSchema = {
  type: 'string',
  format: 'uuid',
  examples: ['6f1d2c1e-8b1a-4d0e-9a57-2f2b6c3d4e5f'],
};

export const retryable: JsonSchema = {
  type: 'boolean',
  description: 'Whether the same request may succeed later.',
};

export function ref(name: string): JsonSchema {
  return { $ref: `#/components/schemas/${name}` };
}

export type Properties<View> = Readonly<Record<keyof View, JsonSchema>>;

/** Every property is required but those named in `optional`. */
export function object<View>(
  properties: Properties<View>,
  optional: readonly NoInfer<keyof View>[] = [],
  description?: string,
): JsonSchema {
  const names = Object.keys(properties) as (keyof View)[];
  const required = names.filter(name => !optional.includes(name));
  return {
    type: 'object',
    ...(description === undefined ? {} : { description }),
    required,
    properties,
  };
}

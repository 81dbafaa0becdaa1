/** What stands in the address of a list: one value a name, else the one that is meant without. */
import type { FastifyRequest } from 'fastify';

/** At most this long: a cursor, a name, an id. */
const VALUE_LENGTH_MAX = 200;

/** Undefined where it is absent, empty, given twice or too long. */
export function queryValue(request: FastifyRequest, name: string): string | undefined {
  const value = (request.query as Record<string, unknown>)[name];
  if (typeof value !== 'string') return undefined;
  const text = value.trim();
  return text === '' || text.length > VALUE_LENGTH_MAX ? undefined : text;
}

/** One of the list; undefined where it is another. */
export function queryChoice<T extends string>(
  request: FastifyRequest,
  name: string,
  choices: readonly T[],
): T | undefined {
  const value = queryValue(request, name);
  return choices.find(choice => choice === value);
}

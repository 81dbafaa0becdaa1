/** The query of GET /v1/account/usage. */

import { parametersOf } from '../../core/http/read-matting-body.ts';
import { givenTwice, unknownField } from '../../http/bodies.ts';
import type { UsageTexts } from './read-usage.ts';

const FIELDS = ['from', 'to', 'group'] as const;

/**
 * @param target the request's, with its path
 * @throws ContractError INVALID_REQUEST: unknown, given twice, not percent-encoded UTF-8
 */
export function readUsageQuery(target: string): UsageTexts {
  const texts: Partial<Record<(typeof FIELDS)[number], string>> = {};
  for (const { name, text } of parametersOf(target)) {
    const field = FIELDS.find(known => known === name);
    if (field === undefined) throw unknownField(name);
    if (texts[field] !== undefined) throw givenTwice(field);
    texts[field] = text;
  }
  return texts;
}

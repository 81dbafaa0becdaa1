/**
 * A model's terms as its manifest states them, of weights and training data apart. Not legal
 * advice.
 */
import type { SchemaObject } from 'ajv';
import { fields, oneOf, text } from './checked-json.ts';

/** unclear: the rights' owner has not said whether it is permitted. It counts as not permitted. */
const COMMERCIAL_USES = ['yes', 'no', 'unclear'] as const;
export type CommercialUse = (typeof COMMERCIAL_USES)[number];

export interface UseTerms {
  readonly commercialUse: CommercialUse;
  /** The source of the use, and the facts that it leaves open, in one line. */
  readonly reason: string;
  /** A URL. unknown: nobody states the use. */
  readonly source: string;
}

export interface Licence {
  /** SPDX expression of the weights. NOASSERTION: their makers state none. */
  readonly spdx: string;
  readonly origin: string;
  readonly weights: UseTerms;
  readonly trainingData: UseTerms;
}

const URL_TEXT = text(/^(https:\/\/\S+|unknown)$/);
const USE_TERMS = fields<UseTerms>({
  commercialUse: oneOf(COMMERCIAL_USES),
  reason: text(),
  source: URL_TEXT,
});

export const LICENCE_SCHEMA: SchemaObject = fields<Licence>({
  spdx: text(),
  origin: URL_TEXT,
  weights: USE_TERMS,
  trainingData: USE_TERMS,
});

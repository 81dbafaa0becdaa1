/**
 * Facts of a request for a page: the person, language and form, as the guard noted them, and the
 * reasons of a refusal.
 */

import type { ActingPerson } from '@matting/accounts/audit-log.ts';
import { readBody } from '@matting/http/bodies.ts';
import { FIELDS_MAX } from '@matting/http/body-fields.ts';
import { KeptBytes } from '@matting/http/kept-bytes.ts';
import { bodyTypeOf, extendsAscii } from '@matting/http/request-headers.ts';
import { wantBody } from '@matting/http/unread-bodies.ts';
import { UNCOUNTED } from '@matting/program/held-bytes.ts';
import type { FastifyReply, FastifyRequest } from 'fastify';
import Negotiator from 'negotiator';
import {
  type Formats,
  formatsIn,
  isLanguage,
  LANGUAGES,
  type Language,
  type Words,
  wordsIn,
} from '../words/words.ts';
import type { Role } from './roles.ts';

/** The statuses of refusals. Their texts are in words/*.json, under `errors`. */
const PAGE_ERRORS = {
  forbidden: 403,
  notFound: 404,
  staleForm: 403,
  otherOrigin: 403,
  /** Others could read the password on its way. */
  insecure: 403,
  badForm: 400,
  tooManyAttempts: 429,
  providerDown: 502,
} as const;

type PageErrorKind = keyof typeof PAGE_ERRORS;

export class PageError extends Error {
  readonly kind: PageErrorKind;
  readonly retryAfterS: number | undefined;

  constructor(
    kind: PageErrorKind,
    options: { readonly retryAfterS?: number | undefined; cause?: unknown } = {},
  ) {
    super(kind, { cause: options.cause });
    this.name = 'PageError';
    this.kind = kind;
    this.retryAfterS = options.retryAfterS;
  }

  get status(): number {
    return PAGE_ERRORS[this.kind];
  }
}

export interface SignedIn {
  readonly userId: string;
  readonly mail: string;
  readonly sessionId: string;
  readonly accountId: string;
  readonly accountName: string;
  readonly role: Role;
  readonly csrf: string;
  readonly method: 'password' | 'oidc' | 'link';
  readonly accounts: readonly { readonly id: string; readonly name: string; readonly role: Role }[];
  readonly actor: ActingPerson;
}

export interface Locale {
  readonly language: Language;
  readonly words: Words;
  readonly formats: Formats;
}

export type Visit = SignedIn & Locale;

interface Noted {
  person?: SignedIn | undefined;
  csrf?: string | undefined;
  /** The person's choice. Null and undefined: the browser's languages decide. */
  language?: string | null | undefined;
  form?: FormFields;
}

const noted = new WeakMap<FastifyRequest, Noted>();

export function note(request: FastifyRequest, more: Noted): void {
  noted.set(request, { ...noted.get(request), ...more });
}

export function maybeSignedIn(request: FastifyRequest): SignedIn | undefined {
  return noted.get(request)?.person;
}

export function visitOf(request: FastifyRequest): Visit {
  const person = maybeSignedIn(request);
  if (person === undefined) throw new Error('a route without a permission asked who signed in');
  return { ...person, ...localeOf(request) };
}

export function maybeCsrf(request: FastifyRequest): string | undefined {
  return noted.get(request)?.csrf;
}

export function formOf(request: FastifyRequest): FormFields {
  const form = noted.get(request)?.form;
  if (form === undefined) throw new Error('a route without a form asked for its fields');
  return form;
}

/** Browsers send some 50 characters. A longer header is ignored. */
const ACCEPT_LANGUAGE_LENGTH_MAX = 500;

/** The person's choice, else `?language=`, else the browser's languages. */
function languageOf(request: FastifyRequest): Language {
  const chosen = noted.get(request)?.language;
  if (isLanguage(chosen)) return chosen;
  const language = queryOf(request, 'language');
  if (isLanguage(language)) return language;
  const accepted = request.headers['accept-language'];
  if (accepted === undefined || accepted.length > ACCEPT_LANGUAGE_LENGTH_MAX) return 'en';
  const preferred = new Negotiator({ headers: { 'accept-language': accepted } }).languages();
  // Every kind of Chinese gets zh-CN. Unknown languages are skipped.
  const known = preferred.map(tag =>
    /^zh\b/i.test(tag) ? 'zh-CN' : tag.replace(/^en\b.*/i, 'en'),
  );
  return known.find(isLanguage) ?? LANGUAGES[0];
}

export function localeOf(request: FastifyRequest): Locale {
  const language = languageOf(request);
  return { language, words: wordsIn(language), formats: formatsIn(language) };
}

export function queryOf(request: FastifyRequest, name: string): unknown {
  // A malformed target has no query.
  return ((request.query ?? {}) as Record<string, unknown>)[name];
}

/** The longest form has a few short fields and a list of networks. */
export const FORM_BYTES_MAX = 32 * 1024;
/** From the headers to the last byte: 64 kbit/s bring the longest form in 4 s. */
const FORM_MS_MAX = 5000;
/** The bound of the Unicode standard (UAX 15, D3). Beyond it normalization takes quadratic time. */
const MARKS_IN_A_ROW = /\p{M}{31}/u;
const FORM_TYPE = 'application/x-www-form-urlencoded';

export class FormFields {
  readonly #fields: ReadonlyMap<string, readonly string[]>;

  constructor(fields: ReadonlyMap<string, readonly string[]>) {
    this.#fields = fields;
  }

  /** In Unicode's composed form. '' if absent. @throws PageError given twice */
  text(name: string): string {
    const values = this.#fields.get(name) ?? [];
    if (values.length > 1) throw new PageError('badForm');
    return values[0] ?? '';
  }

  all(name: string): readonly string[] {
    return this.#fields.get(name) ?? [];
  }

  has(name: string): boolean {
    return this.#fields.has(name);
  }
}

/** Runs before the first byte of the form. @throws PageError badForm */
export function requireFormHead(request: FastifyRequest): void {
  const type = bodyTypeOf(request.raw);
  const isForm = type !== 'none' && type?.type === FORM_TYPE && extendsAscii(type);
  if (!isForm || request.headers['content-encoding'] !== undefined) throw new PageError('badForm');
  if (Number(request.headers['content-length'] ?? 0) > FORM_BYTES_MAX) {
    throw new PageError('badForm');
  }
}

/** The route needs requireFormHead. @throws PageError badForm; ContractError of readBody */
export async function readFormBody(
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<FormFields> {
  wantBody(request, reply);
  const kept = new KeptBytes(FORM_BYTES_MAX, UNCOUNTED);
  const bounds = { bytesMax: FORM_BYTES_MAX, wholeMsMax: FORM_MS_MAX };
  await readBody(request.raw, bounds, chunk => void kept.append(chunk));
  return parseForm(kept.view());
}

export function parseForm(bytes: Buffer): FormFields {
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch (cause) {
    throw new PageError('badForm', { cause });
  }
  if (text.split('&', FIELDS_MAX + 1).length > FIELDS_MAX) throw new PageError('badForm');
  const fields = new Map<string, string[]>();
  for (const [name, value] of new URLSearchParams(text)) {
    // The decoder replaced bytes that are not UTF-8.
    if (value.includes('\uFFFD') || MARKS_IN_A_ROW.test(value)) throw new PageError('badForm');
    const values = fields.get(name) ?? [];
    values.push(value.normalize('NFC'));
    fields.set(name, values);
  }
  return new FormFields(fields);
}

/** '' if absent. @throws PageError given twice */
export function queryText(request: FastifyRequest, name: string): string {
  const value = queryOf(request, name) ?? '';
  if (typeof value !== 'string') throw new PageError('badForm');
  return value;
}

/**
 * A request for a page: who asks, in which language, with which form (noted by the guard of its
 * door), and why it is refused. A form is small and read whole, each field once.
 */

import type { ActingPerson } from '@matting/core/accounts/audit.ts';
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

/** Why a page is refused. The words of each are in words/*.json, below `errors`. */
const PAGE_ERRORS = {
  forbidden: 403,
  /** No such thing in this account, or not in this one. */
  notFound: 404,
  /** The form is older than the session, or of another page. */
  staleForm: 403,
  /** The request comes from another site, or the page was opened at another address. */
  otherOrigin: 403,
  /** Nobody signs in where others can read along. */
  insecure: 403,
  badForm: 400,
  tooManyAttempts: 429,
  /** The identity provider does not answer, or refuses. */
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
  /** The public id of the session, as lists show it. */
  readonly sessionId: string;
  /** The account that the person acts for: what every use case is asked with. */
  readonly accountId: string;
  readonly accountName: string;
  readonly role: Role;
  /** For the hidden field `csrf` of forms. */
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
  /** What was chosen. Null and undefined: what the browser asks for. */
  language?: string | null | undefined;
  form?: FormFields;
}

const noted = new WeakMap<FastifyRequest, Noted>();

/** Adds to what is known of the request; what is given as undefined is known no more. */
export function note(request: FastifyRequest, more: Noted): void {
  noted.set(request, { ...noted.get(request), ...more });
}

/** Undefined: nobody is signed in (any more). */
export function maybeSignedIn(request: FastifyRequest): SignedIn | undefined {
  return noted.get(request)?.person;
}

export function visitOf(request: FastifyRequest): Visit {
  const person = maybeSignedIn(request);
  if (person === undefined) throw new Error('a route without a permission asked who signed in');
  return { ...person, ...localeOf(request) };
}

/** The token of who is signed in; undefined: nobody is. */
export function maybeCsrf(request: FastifyRequest): string | undefined {
  return noted.get(request)?.csrf;
}

/** The fields of a POST whose Origin and token were checked. */
export function formOf(request: FastifyRequest): FormFields {
  const form = noted.get(request)?.form;
  if (form === undefined) throw new Error('a route without a form asked for its fields');
  return form;
}

/** Browsers send some 50 characters; a longer header is ignored. */
const ACCEPT_LANGUAGE_LENGTH_MAX = 500;

/** The person's own; a stranger's by `?language=`, else by what the browser asks for. */
function languageOf(request: FastifyRequest): Language {
  const chosen = noted.get(request)?.language;
  if (isLanguage(chosen)) return chosen;
  const language = queryOf(request, 'language');
  if (isLanguage(language)) return language;
  const accepted = request.headers['accept-language'];
  if (accepted === undefined || accepted.length > ACCEPT_LANGUAGE_LENGTH_MAX) return 'en';
  const asked = new Negotiator({ headers: { 'accept-language': accepted } }).languages();
  // Every Chinese gets the one that there is; what is before it and not known is passed over.
  const known = asked.map(tag => (/^zh\b/i.test(tag) ? 'zh-CN' : tag.replace(/^en\b.*/i, 'en')));
  return known.find(isLanguage) ?? LANGUAGES[0];
}

export function localeOf(request: FastifyRequest): Locale {
  const language = languageOf(request);
  return { language, words: wordsIn(language), formats: formatsIn(language) };
}

/** A parameter of the address, as it was given; a list where it was given twice. */
export function queryOf(request: FastifyRequest, name: string): unknown {
  // Of a target that cannot be read there is none.
  return ((request.query ?? {}) as Record<string, unknown>)[name];
}

/** The longest form has a few short fields and a list of networks. */
export const FORM_BYTES_MAX = 32 * 1024;
/** From the headers' checks to the last byte: 64 kbit/s bring the longest form in 4 s. */
export const FORM_MS_MAX = 5000;
/** The Unicode standard's own bound (UAX 15, D3): beyond it composing them costs their square. */
const MARKS_IN_A_ROW = /\p{M}{31}/u;
const FORM_TYPE = 'application/x-www-form-urlencoded';

export class FormFields {
  readonly #fields: ReadonlyMap<string, readonly string[]>;

  constructor(fields: ReadonlyMap<string, readonly string[]>) {
    this.#fields = fields;
  }

  /** As typed, in Unicode's composed form; '' where absent. @throws PageError given twice */
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

/** What the headers say of a form, before a byte of it is awaited. @throws PageError badForm */
export function requireFormHead(request: FastifyRequest): void {
  const type = bodyTypeOf(request.raw);
  const isForm = type !== 'none' && type?.type === FORM_TYPE && extendsAscii(type);
  if (!isForm || request.headers['content-encoding'] !== undefined) throw new PageError('badForm');
  if (Number(request.headers['content-length'] ?? 0) > FORM_BYTES_MAX) {
    throw new PageError('badForm');
  }
}

/** Only where requireFormHead has passed. @throws PageError badForm; ContractError of readBody */
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
    // What is not UTF-8 was replaced: nobody typed it.
    if (value.includes('\uFFFD') || MARKS_IN_A_ROW.test(value)) throw new PageError('badForm');
    const values = fields.get(name) ?? [];
    values.push(value.normalize('NFC'));
    fields.set(name, values);
  }
  return new FormFields(fields);
}

/** '' where it is absent. @throws PageError given twice */
export function queryText(request: FastifyRequest, name: string): string {
  const value = queryOf(request, name) ?? '';
  if (typeof value !== 'string') throw new PageError('badForm');
  return value;
}

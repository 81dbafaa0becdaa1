/**
 * A request for a page: who asks, in which language, with which form (noted by the guard of its
 * door), and why it is refused. A form is small and read whole, each field once.
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

/** A page is refused for one of these reasons. words/*.json has their words, below `errors`. */
const PAGE_ERRORS = {
  forbidden: 403,
  /** Nothing of this id exists, or not in this account. */
  notFound: 404,
  /** The form is older than the session, or of another page. */
  staleForm: 403,
  /** The request comes from another site, or the page was opened at another address. */
  otherOrigin: 403,
  /** People cannot sign in where others can read along. */
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
  /** The person acts for this account, which every use case gets. */
  readonly accountId: string;
  readonly accountName: string;
  readonly role: Role;
  /** The hidden field `csrf` of forms has this value. */
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
  /** The person chose it. Null and undefined: the browser's languages decide. */
  language?: string | null | undefined;
  form?: FormFields;
}

const noted = new WeakMap<FastifyRequest, Noted>();

/** Adds to what is known of the request; undefined removes a value. */
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

/** Answers the token of who is signed in; undefined: nobody is. */
export function maybeCsrf(request: FastifyRequest): string | undefined {
  return noted.get(request)?.csrf;
}

/** Answers the fields of a POST whose Origin and token were checked. */
export function formOf(request: FastifyRequest): FormFields {
  const form = noted.get(request)?.form;
  if (form === undefined) throw new Error('a route without a form asked for its fields');
  return form;
}

/** Browsers send some 50 characters; a longer header is ignored. */
const ACCEPT_LANGUAGE_LENGTH_MAX = 500;

/** Takes the person's own; a stranger's by `?language=`, else by the browser's languages. */
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

/** Answers a parameter of the address as it came; a list if it came twice. */
export function queryOf(request: FastifyRequest, name: string): unknown {
  // A target that cannot be read has no query.
  return ((request.query ?? {}) as Record<string, unknown>)[name];
}

/** The longest form has a few short fields and a list of networks. */
export const FORM_BYTES_MAX = 32 * 1024;
/** From the headers' checks to the last byte, 64 kbit/s bring the longest form in 4 s. */
const FORM_MS_MAX = 5000;
/** The Unicode standard has this bound (UAX 15, D3); past it, composing costs the square. */
const MARKS_IN_A_ROW = /\p{M}{31}/u;
const FORM_TYPE = 'application/x-www-form-urlencoded';

export class FormFields {
  readonly #fields: ReadonlyMap<string, readonly string[]>;

  constructor(fields: ReadonlyMap<string, readonly string[]>) {
    this.#fields = fields;
  }

  /**
   * Answers text as typed, in Unicode's composed form; '' if absent. @throws PageError given twice
   */
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

/** Checks the headers of a form before any byte of it arrives. @throws PageError badForm */
export function requireFormHead(request: FastifyRequest): void {
  const type = bodyTypeOf(request.raw);
  const isForm = type !== 'none' && type?.type === FORM_TYPE && extendsAscii(type);
  if (!isForm || request.headers['content-encoding'] !== undefined) throw new PageError('badForm');
  if (Number(request.headers['content-length'] ?? 0) > FORM_BYTES_MAX) {
    throw new PageError('badForm');
  }
}

/** Needs requireFormHead before it. @throws PageError badForm; ContractError of readBody */
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
    // The decoder replaced bytes that are not UTF-8, which nobody typed.
    if (value.includes('\uFFFD') || MARKS_IN_A_ROW.test(value)) throw new PageError('badForm');
    const values = fields.get(name) ?? [];
    values.push(value.normalize('NFC'));
    fields.set(name, values);
  }
  return new FormFields(fields);
}

/** Answers '' if it is absent. @throws PageError given twice */
export function queryText(request: FastifyRequest, name: string): string {
  const value = queryOf(request, name) ?? '';
  if (typeof value !== 'string') throw new PageError('badForm');
  return value;
}

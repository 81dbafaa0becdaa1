/** Who asks for a page, in which language, and with which form: noted by the guard of its door. */
import type { FastifyRequest } from 'fastify';
import Negotiator from 'negotiator';
import type { ActingPerson } from '../../core/accounts/actor.ts';
import type { Role } from '../people/roles.ts';
import { type Formats, formatsIn } from '../words/formats.ts';
import { isLanguage, LANGUAGES, type Language, type Words, wordsIn } from '../words/words.ts';
import type { FormFields } from './form-body.ts';

/** Who is signed in at the account area. */
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
  /** How the session began. */
  readonly method: 'password' | 'oidc' | 'link';
  /** Every account of the person, by name. */
  readonly accounts: readonly { readonly id: string; readonly name: string; readonly role: Role }[];
  readonly actor: ActingPerson;
}

/** How a page writes words, dates and numbers. */
export interface Locale {
  readonly language: Language;
  readonly words: Words;
  readonly formats: Formats;
}

/** What a page of the account area is made with. */
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

/** Only for routes that name a permission. */
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

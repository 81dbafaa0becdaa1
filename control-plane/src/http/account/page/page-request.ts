/** Whose page a request asks for, and in which language. */
import type { FastifyRequest } from 'fastify';
import Negotiator from 'negotiator';
import { type Formats, formatsIn } from '../words/formats.ts';
import { isLanguage, LANGUAGES, type Language, type Words, wordsIn } from '../words/words.ts';

/** Who is signed in, as the frame of a page needs it. */
export interface PageViewer {
  readonly mail: string;
  readonly accountId: string;
  readonly accountName: string;
  readonly role: 'owner' | 'member' | 'viewer';
  readonly csrf: string;
  readonly language: Language;
  readonly accounts: readonly { readonly id: string; readonly name: string }[];
}

const viewers = new WeakMap<FastifyRequest, PageViewer>();

/** Called before the page's handler. @param viewer undefined: nobody is signed in (any more) */
export function setPageViewer(request: FastifyRequest, viewer: PageViewer | undefined): void {
  if (viewer === undefined) viewers.delete(request);
  else viewers.set(request, viewer);
}

export function pageViewerOf(request: FastifyRequest): PageViewer | undefined {
  return viewers.get(request);
}

/** Browsers send some 50 characters; a longer header is ignored. */
const ACCEPT_LANGUAGE_LENGTH_MAX = 500;

/** The person's own; a stranger's by `?language=`, else by what the browser asks for. */
export function languageOf(request: FastifyRequest): Language {
  const viewer = viewers.get(request);
  if (viewer !== undefined) return viewer.language;
  // Of a target that cannot be read there is none.
  const { language } = (request.query ?? {}) as Record<string, unknown>;
  if (isLanguage(language)) return language;
  const accepted = request.headers['accept-language'];
  if (accepted === undefined || accepted.length > ACCEPT_LANGUAGE_LENGTH_MAX) return 'en';
  const asked = new Negotiator({ headers: { 'accept-language': accepted } }).languages();
  // Every Chinese gets the one that there is; what is before it and not known is passed over.
  const known = asked.map(tag => (/^zh\b/i.test(tag) ? 'zh-CN' : tag.replace(/^en\b.*/i, 'en')));
  return known.find(isLanguage) ?? LANGUAGES[0];
}

export function wordsOf(request: FastifyRequest): Words {
  return wordsIn(languageOf(request));
}

export function formatsOf(request: FastifyRequest): Formats {
  return formatsIn(languageOf(request));
}

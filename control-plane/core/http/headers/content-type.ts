/**
 * What a Content-Type says (RFC 9110 section 8.3), of a request and of a part of its body. Of bytes
 * the bytes decide: a charset counts only where it would make others of the bytes of ASCII.
 */
import type { IncomingMessage } from 'node:http';
import { headerValues } from './raw-headers.ts';

export interface ContentType {
  /** In lower case. */
  readonly type: string;
  /** By lower case names. Undefined: they cannot be read, or one comes twice. */
  readonly parameters: ReadonlyMap<string, string> | undefined;
}

const TOKEN = "[!#$%&'*+\\-.^_`|~0-9A-Za-z]+";
const TYPE = new RegExp(`^(${TOKEN}/${TOKEN})[ \\t]*(?:;|$)`);
/**
 * Sticky, so that what lies between two parameters is not skipped. A quoted value that no quote
 * ends but an escaped one ends there: browsers and HTTP libraries leave a backslash as it is, and
 * in Big5, GBK and Shift_JIS it is half of a character.
 */
const PARAMETER = new RegExp(
  `[ \\t]*;[ \\t]*(${TOKEN})[ \\t]*=[ \\t]*` +
    `(?:"((?:[^"\\\\]|\\\\.)*)"|"([^"]*)"(?=[ \\t]*(?:;|$))|([^\\s";]+))`,
  'y',
);
const PARAMETERS_END = /^[ \t]*(?:;[ \t]*)?$/;
/** What texts are made of; and the escape, by which some charsets go on in others. */
const ASCII = `\x1b\t\r\n${String.fromCharCode(...Array.from({ length: 95 }, (_, n) => 0x20 + n))}`;

/** Undefined: it names no type. */
export function parseContentType(text: string): ContentType | undefined {
  const type = TYPE.exec(text)?.[1];
  if (type === undefined) return undefined;
  return { type: type.toLowerCase(), parameters: readParameters(text, type.length) };
}

/**
 * The type of a request's body. Each Content-Type counts: Node keeps the first, something before us
 * may have gone by another. @returns none: there is no body; undefined: none that is one
 */
export function bodyTypeOf(request: IncomingMessage): ContentType | 'none' | undefined {
  const given = headerValues(request, 'content-type');
  if (given.length === 0) return hasBody(request) ? undefined : 'none';
  const types = given.map(parseContentType);
  const [type] = types;
  const isJson = types.every(one => one?.type === 'application/json' && extendsAscii(one));
  if (type?.type === 'application/json' && !isJson) return undefined;
  return types.length === 1 || isJson ? type : undefined;
}

/**
 * By lower case names. Undefined: not readable, or one comes twice.
 * @param from where the first semicolon is, or blanks before it
 */
export function readParameters(
  text: string,
  from: number,
): ReadonlyMap<string, string> | undefined {
  const parameters = new Map<string, string>();
  PARAMETER.lastIndex = from;
  let end = from;
  for (let match = PARAMETER.exec(text); match !== null; match = PARAMETER.exec(text)) {
    const [, name = '', quoted, unescaped, token = ''] = match;
    const key = name.toLowerCase();
    if (parameters.has(key)) return undefined;
    parameters.set(key, quoted?.replaceAll(/\\(.)/g, '$1') ?? unescaped ?? token);
    end = PARAMETER.lastIndex;
  }
  return PARAMETERS_END.test(text.slice(end)) ? parameters : undefined;
}

/** In lower case, utf-8 where none is named. */
export function charsetOf({ parameters }: ContentType): string {
  return parameters?.get('charset')?.toLowerCase() ?? 'utf-8';
}

/** Whether bytes that are ASCII are the same text in its charset. */
export function extendsAscii(type: ContentType): boolean {
  try {
    return new TextDecoder(charsetOf(type)).decode(Buffer.from(ASCII)) === ASCII;
  } catch {
    // Only a charset of which nobody knows throws.
    return false;
  }
}

export function hasBody({ headers }: IncomingMessage): boolean {
  if (headers['transfer-encoding'] !== undefined) return true;
  return Number(headers['content-length'] ?? 0) > 0;
}

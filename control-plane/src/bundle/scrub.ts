/**
 * Text from outside of this program's own words, such as a log's or an error's: what could be a
 * secret, a URL or an address of a person is cut out of it, whether anybody knows it to be one or
 * not.
 */

const LEFT_OUT = '[left out]';
/** Long enough for a stack. */
const TEXT_LENGTH_MAX = 4000;
/** Files of the program itself, in stacks, stay. */
const URL_TEXT = /\b(?!file:\/\/\/)[a-z][a-z0-9+.-]{1,20}:\/\/[^\s"'<>)\]]+/gi;
// Bounds within, so that no text takes longer than its length allows.
const MAIL = /[^\s@<>"'(]{1,80}@[^\s@<>"')]{1,255}/g;
const API_KEY = /\b(mk|whsec)_[A-Za-z0-9_+/=-]+/g;
const SCHEME = /\b(Bearer|Basic)\s+\S+/gi;
/** name=value, "name": "value". */
const NAMED =
  /\b([\w-]{0,40}(?:passw|secret|token|authorization|api[-_]?key|signature|credential|cookie)[\w-]{0,40})(["']?\s{0,4}[:=]\s{0,4}["']?)[^\s"',;}]+/gi;
const LONG = /[A-Za-z0-9+/_=.~-]{24,}/g;
/** Names that people and machines give: UUIDs, hosts, files, folders; each part of one is short. */
const NAME = /^[a-z0-9]{0,24}(?:[._-]+[a-z0-9]{1,24})*$/;
/** Names in any case, without a digit, of words such as openFile or OPEN_FILE. */
const WORDS = /^[A-Za-z._-]+$/;
const WORD = /[A-Z]+(?![a-z])|[A-Z]?[a-z]+/g;
/** On average; of letters made at random a word is three long. */
const WORD_LENGTH_MIN = 5;
/** Hexadecimal digits of a hash, in one piece: no name of anything. */
const DIGITS = /^[0-9a-f]{16,}$/;

/** What is left of a text; never longer than TEXT_LENGTH_MAX. */
export function scrubbed(text: string): string {
  const some = text.slice(0, TEXT_LENGTH_MAX).replaceAll(URL_TEXT, '[URL]');
  // Looked for only where one can be: it is the one that reads every letter many times.
  return (some.includes('@') ? some.replaceAll(MAIL, '[mail]') : some)
    .replaceAll(API_KEY, LEFT_OUT)
    .replaceAll(SCHEME, (_, scheme: string) => `${scheme} ${LEFT_OUT}`)
    .replaceAll(NAMED, (_, name: string, sign: string) => `${name}${sign}${LEFT_OUT}`)
    .replaceAll(LONG, long => (isName(long) ? long : LEFT_OUT));
}

function isName(long: string): boolean {
  const parts = long.split('/');
  return parts.every(part => isOfWords(part) || (NAME.test(part) && !DIGITS.test(part)));
}

function isOfWords(part: string): boolean {
  const words = part.match(WORD)?.length ?? 0;
  return WORDS.test(part) && part.length >= words * WORD_LENGTH_MIN;
}

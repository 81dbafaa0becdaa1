/**
 * Text from outside of this program's own words, such as a log's or an error's: what could be a
 * secret, a URL or an address of a person or a machine is cut out of it, whether anybody knows it
 * to be one or not.
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
/** Addresses of machines, with a port or without one; other texts between colons and dots, too. */
const IPV4 = /\b(\d{1,3}(?:\.\d{1,3}){3})(:\d{1,5})?\b/g;
const IPV6 =
  /(?<![\w:])\[?(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{0,5}(?:%\w{1,15})?\]?(?::\d{1,5})?(?![\w:])/gi;
/** What a name that nobody knows was looked up as: of a caller's URL, perhaps. */
const LOOKED_UP = /\b(ENOTFOUND|EAI_[A-Z]{2,20})\s+[^\s,;]{1,255}/g;
const PLACE = /\b[a-z0-9](?:[a-z0-9._-]{0,253}[a-z0-9])?:\d{1,5}\b/gi;
const HOST = '[host]';
/** This machine, and every interface of one. */
const THIS_MACHINE = /^(?:127\.|0\.0\.0\.0|localhost:)/;
/** Hexadecimal digits of a hash, in one piece: no name of anything. */
const DIGITS = /^[0-9a-f]{16,}$/;

/** What is left of a text; never longer than TEXT_LENGTH_MAX. */
export function scrubbed(text: string): string {
  const some = text.slice(0, TEXT_LENGTH_MAX).replaceAll(URL_TEXT, '[URL]');
  // Looked for only where one can be: it is the one that reads every letter many times.
  return (some.includes('@') ? some.replaceAll(MAIL, '[mail]') : some)
    .replaceAll(LOOKED_UP, (_, code: string) => `${code} ${HOST}`)
    .replaceAll(IPV4, (whole, host: string) => (THIS_MACHINE.test(host) ? whole : HOST))
    .replaceAll(IPV6, address => (isIpv6(address) ? HOST : address))
    .replaceAll(API_KEY, LEFT_OUT)
    .replaceAll(SCHEME, (_, scheme: string) => `${scheme} ${LEFT_OUT}`)
    .replaceAll(NAMED, (_, name: string, sign: string) => `${name}${sign}${LEFT_OUT}`)
    .replaceAll(LONG, long => (isName(long) ? long : LEFT_OUT));
}

/** The same of what a doctor found: there `name:12` is a machine, in a stack it is a line. */
export function scrubbedOfPlaces(text: string): string {
  const cut = (place: string) => (THIS_MACHINE.test(place) ? place : HOST);
  return scrubbed(text).replaceAll(PLACE, cut);
}

/** Whole or shortened, and not `::1`; a time of the day has no more than two colons. */
function isIpv6(text: string): boolean {
  const [, address = text] = /^\[(.*)\]/.exec(text) ?? [];
  if (/^::1?(?:$|:\d+$)/.test(address)) return false;
  return /[0-9a-f]/i.test(address) && (address.includes('::') || address.split(':').length > 7);
}

function isName(long: string): boolean {
  const parts = long.split('/');
  return parts.every(part => isOfWords(part) || (NAME.test(part) && !DIGITS.test(part)));
}

function isOfWords(part: string): boolean {
  const words = part.match(WORD)?.length ?? 0;
  return WORDS.test(part) && part.length >= words * WORD_LENGTH_MIN;
}

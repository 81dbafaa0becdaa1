import { randomUUID } from 'node:crypto';
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { isIP } from 'node:net';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { contentTypeOf, type OutputFormat } from '@matting/proto/contract/formats.ts';
import { IDEMPOTENCY_KEY_LENGTH_MAX } from '@matting/proto/contract/limits.ts';
import type { FastifyRequest, onRequestHookHandler } from 'fastify';
import Negotiator from 'negotiator';

/** Browsers send 150 characters. */
const ACCEPT_LENGTH_MAX = 1000;
/** A range may name the charset. */
const JSON_TYPE = 'application/json; charset=utf-8';
const IMAGE_RANGE = /^image\/./;
/** Callers' other names for a format's type. */
const ALIASES: Readonly<Record<string, string>> = { 'image/jpeg': 'image/jpg' };

interface AcceptHeader {
  /** @param formats the default first @returns 'none': a picture, but in none of these formats */
  prefer(formats: readonly OutputFormat[]): OutputFormat | 'json' | 'none';
}

const JSON_ALONE: AcceptHeader = { prefer: () => 'json' };

function readAccept(header: string | undefined): Negotiator | undefined {
  if (header === undefined || header.length > ACCEPT_LENGTH_MAX) return undefined;
  return new Negotiator({ headers: { accept: header } });
}

/** @param header all Accept headers, joined by commas */
export function acceptsJson(header: string | undefined): boolean {
  return readAccept(header)?.mediaTypes([JSON_TYPE]).length !== 0;
}

/**
 * True only if the client asks explicitly for JSON. HTTP libraries send `application/json,
 * text/plain, *\/*` by default and write the answer to a file.
 * @param header all Accept headers, joined by commas
 */
export function wantsJsonAlone(header: string | undefined, others: readonly string[]): boolean {
  const accept = readAccept(header);
  if (accept === undefined || accept.mediaTypes().includes('*/*')) return false;
  const [best] = accept.mediaTypes(['application/json', ...others]);
  return best === 'application/json';
}

/**
 * Chooses JSON or the picture itself by Accept (RFC 9110 section 12.5.1). It ignores unreadable
 * ranges.
 *
 * | Accept                                      | answer                                             |
 * |---------------------------------------------|----------------------------------------------------|
 * | no image type with a quality above 0        | JSON, even if Accept excludes it                   |
 * | with `text/html`                            | JSON: browsers and some HTTP clients send it       |
 * | an image type that precedes JSON            | the picture, in the format it prefers              |
 * | an image type that is not made, and no JSON | none: the request is refused                       |
 *
 * A type precedes another if its quality is higher, else if it is more specific, else if it is
 * named first.
 * @param header all Accept headers, joined by commas
 */
export function acceptedAnswers(header: string | undefined): AcceptHeader {
  const negotiator = readAccept(header);
  if (negotiator === undefined) return JSON_ALONE;
  const named = negotiator.mediaTypes().map(range => range.toLowerCase());
  if (named.includes('text/html')) return JSON_ALONE;
  if (!named.some(range => IMAGE_RANGE.test(range))) return JSON_ALONE;
  return {
    prefer: formats => {
      // JSON comes first, so that a range that takes both means JSON.
      const answers: [type: string, answer: OutputFormat | 'json'][] = [[JSON_TYPE, 'json']];
      for (const format of formats) {
        const type = contentTypeOf(format);
        answers.push([type, format]);
        const alias = ALIASES[type];
        if (alias !== undefined) answers.push([alias, format]);
      }
      const [best] = negotiator.mediaTypes(answers.map(([type]) => type));
      return answers.find(([type]) => type === best)?.[1] ?? 'none';
    },
  };
}

export interface ByteRange {
  /** Both inclusive. */
  readonly start: number;
  readonly end: number;
}

const ONE_RANGE = /^bytes=[ \t]*(\d*)-(\d*)[ \t]*$/i;

/** RFC 9110 section 14. undefined: none, several or an unreadable one; send the whole file. */
export function parseRange(
  header: string | undefined,
  sizeBytes: number,
): ByteRange | 'unsatisfiable' | undefined {
  const match = header === undefined ? null : ONE_RANGE.exec(header);
  if (match === null || (match[1] === '' && match[2] === '')) return undefined;
  if (match[1] === '') {
    const suffixBytes = Number(match[2]);
    if (suffixBytes === 0 || sizeBytes === 0) return 'unsatisfiable';
    return { start: Math.max(0, sizeBytes - suffixBytes), end: sizeBytes - 1 };
  }
  const start = Number(match[1]);
  const last = match[2] === '' ? Number.POSITIVE_INFINITY : Number(match[2]);
  if (last < start) return undefined;
  if (start >= sizeBytes) return 'unsatisfiable';
  return { start, end: Math.min(last, sizeBytes - 1) };
}

/** The file never changes, so its date is as strong as its tag. */
export interface Validators {
  /** Strong, with its quotes. */
  readonly etag: string;
  /** UTC milliseconds of a whole second. */
  readonly modifiedAtMs: number;
}

const TAG = /(?:W\/)?"[^"]*"/g;

/**
 * In the order of RFC 9110 section 13.2.2. A tag overrides a date. Unreadable dates are ignored.
 */
export function judgeConditions(
  headers: IncomingHttpHeaders,
  { etag, modifiedAtMs }: Validators,
): 'failed' | 'not-modified' | 'send' {
  const match = headers['if-match'];
  const unmodifiedSince = parseHttpDate(headers['if-unmodified-since']);
  if (match !== undefined) {
    if (!names(match, etag, 'strong')) return 'failed';
  } else if (unmodifiedSince !== undefined && modifiedAtMs > unmodifiedSince) {
    return 'failed';
  }
  const noneMatch = headers['if-none-match'];
  const modifiedSince = parseHttpDate(headers['if-modified-since']);
  if (noneMatch !== undefined) return names(noneMatch, etag, 'weak') ? 'not-modified' : 'send';
  if (modifiedSince !== undefined && modifiedAtMs <= modifiedSince) return 'not-modified';
  return 'send';
}

export function rangeStillHolds(
  ifRange: string | undefined,
  { etag, modifiedAtMs }: Validators,
): boolean {
  return ifRange === undefined || ifRange === etag || parseHttpDate(ifRange) === modifiedAtMs;
}

export function namesTag(headers: IncomingHttpHeaders, etag: string): boolean {
  const conditions = [headers['if-match'], headers['if-none-match'], headers['if-range']];
  return conditions.some(list => list?.toString().includes(etag));
}

function names(list: string, etag: string, comparison: 'strong' | 'weak'): boolean {
  if (list === '*') return true;
  const weakened = comparison === 'weak' ? `W/${etag}` : etag;
  return (list.match(TAG) ?? []).some(tag => tag === etag || tag === weakened);
}

/** RFC 9110 section 8.3. */
export interface ContentType {
  readonly type: string;
  /** By names in lower case. undefined: unreadable, or one is given twice. */
  readonly parameters: ReadonlyMap<string, string> | undefined;
}

const TOKEN = "[!#$%&'*+\\-.^_`|~0-9A-Za-z]+";
const TYPE = new RegExp(`^(${TOKEN}/${TOKEN})[ \\t]*(?:;|$)`);
/**
 * Sticky: it skips nothing between two parameters. In a quoted value, a backslash may escape the
 * next character. Browsers do not escape it, though in Big5, GBK and Shift_JIS it is half of a
 * character. So `\"` ends a value if no later quote does.
 */
const PARAMETER = new RegExp(
  `[ \\t]*;[ \\t]*(${TOKEN})[ \\t]*=[ \\t]*` +
    `(?:"((?:[^"\\\\]|\\\\.)*)"|"([^"]*)"(?=[ \\t]*(?:;|$))|([^\\s";]+))`,
  'y',
);
const PARAMETERS_END = /^[ \t]*(?:;[ \t]*)?$/;
/** Includes the escape byte, by which some charsets switch to others. */
const ASCII = `\x1b\t\r\n${String.fromCharCode(...Array.from({ length: 95 }, (_, n) => 0x20 + n))}`;

/** undefined: not a media type. */
export function parseContentType(text: string): ContentType | undefined {
  const type = TYPE.exec(text)?.[1];
  if (type === undefined) return undefined;
  return { type: type.toLowerCase(), parameters: readParameters(text, type.length) };
}

/**
 * Node keeps the first of several Content-Types, but a proxy may have used another, so all must
 * agree. A charset matters only if it changes the meaning of ASCII bytes.
 * @returns undefined: no valid type
 */
export function bodyTypeOf(request: IncomingMessage): ContentType | 'none' | undefined {
  const given = headerValues(request, 'content-type');
  if (given.length === 0) return hasBody(request) ? undefined : 'none';
  const types = given.map(parseContentType);
  const [type] = types;
  // Tools for S3 send this type.
  if (type?.type === 'binary/octet-stream' && types.length === 1) {
    return { ...type, type: 'application/octet-stream' };
  }
  const isJson = types.every(one => one?.type === 'application/json' && extendsAscii(one));
  if (type?.type === 'application/json' && !isJson) return undefined;
  return types.length === 1 || isJson ? type : undefined;
}

/** Keys in lower case. undefined: unreadable, or a parameter is given twice. */
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

export function charsetOf({ parameters }: ContentType): string {
  return parameters?.get('charset')?.toLowerCase() ?? 'utf-8';
}

/** ASCII bytes are the same text in its charset. */
export function extendsAscii(type: ContentType): boolean {
  try {
    return new TextDecoder(charsetOf(type)).decode(Buffer.from(ASCII)) === ASCII;
  } catch {
    // TextDecoder throws for an unknown charset.
    return false;
  }
}

export function hasBody({ headers }: IncomingMessage): boolean {
  if (headers['transfer-encoding'] !== undefined) return true;
  return Number(headers['content-length'] ?? 0) > 0;
}

/** RFC 7239's name for an unknown address. */
const UNKNOWN_ADDRESS = 'unknown';
/** `203.0.113.9:4711`, `[2001:db8::1]:4711` and `[2001:db8::1]`. */
const WITH_PORT = /^(?:([\d.]+):\d{1,5}|\[([^\]]+)\](?::\d{1,5})?)$/;

/**
 * Azure's gateways add a port to X-Forwarded-For, and some proxies pass on any text. With a port
 * each connection would have an address of its own, and no bound by address would hold.
 */
export function readForwardedFor(
  { raw: { headers } }: FastifyRequest,
  _reply: unknown,
  done: () => void,
): void {
  const given = headers['x-forwarded-for'];
  if (given !== undefined) headers['x-forwarded-for'] = addressesOf(String(given));
  done();
}

export function addressesOf(text: string): string {
  const entries = text.split(',').map(entry => entry.trim());
  return entries
    .filter(entry => entry !== '')
    .map(addressOf)
    .join(', ');
}

function addressOf(entry: string): string {
  const [, ipv4, ipv6] = WITH_PORT.exec(entry) ?? [];
  const address = ipv4 ?? ipv6 ?? entry;
  return isIP(address) === 0 ? UNKNOWN_ADDRESS : address;
}

const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];
const MONTH = `(?<month>${MONTHS.join('|')})`;
const TIME = '(?<hour>\\d\\d):(?<minute>\\d\\d):(?<second>\\d\\d)';

/** IMF-fixdate, RFC 850 and asctime. */
const FORMS = [
  new RegExp(`^[A-Z][a-z]{2}, (?<day>\\d\\d) ${MONTH} (?<year>\\d{4}) ${TIME} GMT$`),
  new RegExp(`^[A-Z][a-z]{5,8}, (?<day>\\d\\d)-${MONTH}-(?<year>\\d\\d) ${TIME} GMT$`),
  new RegExp(`^[A-Z][a-z]{2} ${MONTH} (?<day>[ \\d]\\d) ${TIME} (?<year>\\d{4})$`),
];

/** A later year of two digits belongs to the previous century. */
const AHEAD_YEARS_MAX = 50;

/** UTC milliseconds. undefined: not a date of RFC 9110 section 5.6.7. */
export function parseHttpDate(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const groups = FORMS.map(form => form.exec(text)?.groups).find(found => found !== undefined);
  if (groups === undefined) return undefined;
  const { month: monthName = '', year = '', ...rest } = groups;
  const month = MONTHS.indexOf(monthName);
  const [day, hour] = [Number(rest.day), Number(rest.hour)];
  const [minute, second] = [Number(rest.minute), Number(rest.second)];
  if (hour > 23 || minute > 59 || second > 60) return undefined;
  const date = new Date(0);
  date.setUTCFullYear(fullYear(year), month, day);
  // Refuses the 31st of February. A leap second becomes the next second.
  if (date.getUTCMonth() !== month || date.getUTCDate() !== day) return undefined;
  return date.setUTCHours(hour, minute, second);
}

/** In ms. 0: no Retry-After, or unreadable. */
export function parseRetryAfterMs(header: string | undefined, nowMs: number): number {
  const text = header?.trim() ?? '';
  if (/^\d+$/.test(text)) return Number(text) * 1000;
  return Math.max(0, (parseHttpDate(text) ?? 0) - nowMs);
}

export function formatHttpDate(timeMs: number): string {
  return new Date(timeMs).toUTCString();
}

function fullYear(text: string): number {
  if (text.length === 4) return Number(text);
  const thisYear = new Date().getUTCFullYear();
  const year = thisYear - (thisYear % 100) + Number(text);
  return year > thisYear + AHEAD_YEARS_MAX ? year - 100 : year;
}

const KEY = new RegExp(`^[\\x20-\\x7e]{1,${IDEMPOTENCY_KEY_LENGTH_MAX}}$`);

const KEY_NAME = 'Idempotency-Key';
const ONE_KEY = `Send one key per image, such as ${KEY_NAME}: order-4711, and the same one on every retry.`;

const keys = new WeakMap<FastifyRequest, string>();

/** @throws ContractError INVALID_IDEMPOTENCY_KEY */
export function requireIdempotencyKey(options: { optional: boolean }): onRequestHookHandler {
  return (request, _reply, done) => {
    const values = headerValues(request.raw, 'idempotency-key');
    if (values.length === 0 && !options.optional) throw missingKey(request.method);
    if (values.length > 0) keys.set(request, idempotencyKeyIn(values));
    done();
  };
}

export function idempotencyKeyOf(request: FastifyRequest): string {
  const key = keys.get(request);
  if (key === undefined) throw new Error('a route without requireIdempotencyKey asked for its key');
  return key;
}

/** @throws ContractError INVALID_IDEMPOTENCY_KEY */
export function idempotencyKeyIn([key, ...more]: readonly string[]): string {
  if (key === undefined || key.length === 0) throw invalid(`The ${KEY_NAME} is empty. ${ONE_KEY}`);
  if (more.length > 0) throw invalid(`The ${KEY_NAME} is given more than once. ${ONE_KEY}`);
  if (key.length > IDEMPOTENCY_KEY_LENGTH_MAX) {
    throw invalid(
      `The ${KEY_NAME} is too long. The limit is ${IDEMPOTENCY_KEY_LENGTH_MAX} characters.`,
    );
  }
  if (!KEY.test(key)) throw invalid(`The ${KEY_NAME} must be printable ASCII, such as order-4711.`);
  return key;
}

function missingKey(method: string): ContractError {
  const isRead = method === 'GET' || method === 'HEAD';
  const send = isRead ? `Send any text, such as ${KEY_NAME}: read-1.` : ONE_KEY;
  return invalid(`The ${KEY_NAME} header is missing. ${send}`);
}

function invalid(detail: string): ContractError {
  return new ContractError('INVALID_IDEMPOTENCY_KEY', detail);
}

export interface Preferences {
  readonly respondAsync: boolean;
  readonly waitS: number | undefined;
}

/** Parameters after a semicolon mean nothing here. */
const PREFER_TOKEN = "([!#$%&'*+.^_`|~0-9A-Za-z-]+)";
const QUOTED_OR_PLAIN = '(?:"((?:[^"\\\\]|\\\\.)*)"|([^\\s";,]*))';
const PREFERENCE = new RegExp(
  `^${PREFER_TOKEN}[ \\t]*(?:=[ \\t]*${QUOTED_OR_PLAIN})?[ \\t]*(?:;|$)`,
);
/** RFC 7240 section 4.3: delta-seconds. Nine digits are 31 years. */
const DELTA_SECONDS = /^\d{1,9}$/;

/** The honoured preferences take 30 characters. */
const PREFER_LENGTH_MAX = 1000;

/** Ignores unreadable preferences. The first of two equal ones counts. */
export function parsePrefer(header: string | readonly string[] | undefined): Preferences {
  const values = new Map<string, string>();
  const text = [header ?? ''].flat().join(',');
  for (const member of text.length > PREFER_LENGTH_MAX ? [] : splitList(text)) {
    const match = PREFERENCE.exec(member);
    const name = match?.[1]?.toLowerCase();
    if (match === null || name === undefined || values.has(name)) continue;
    values.set(name, match[2]?.replaceAll(/\\(.)/g, '$1') ?? match[3] ?? '');
  }
  const wait = values.get('wait') ?? '';
  return {
    // RFC 7240: an empty value is the same as none.
    respondAsync: values.get('respond-async') === '',
    waitS: DELTA_SECONDS.test(wait) ? Number(wait) : undefined,
  };
}

/** Splits at commas outside of quotes. */
function splitList(text: string): string[] {
  return (text.match(/(?:"(?:[^"\\]|\\.)*"|[^,"]|")+/g) ?? []).map(member => member.trim());
}

/**
 * All of them: Node's `headers` keeps the first of some and joins others. @param name in lower case
 */
export function headerValues(request: IncomingMessage, name: string): string[] {
  const { rawHeaders } = request;
  const values: string[] = [];
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const [sent, value] = [rawHeaders[index], rawHeaders[index + 1]];
    if (sent?.length === name.length && value !== undefined && sent.toLowerCase() === name) {
      values.push(value);
    }
  }
  return values;
}

/** Fits UUIDs, ULIDs, trace ids and Base64. */
const WELL_FORMED = /^[A-Za-z0-9][A-Za-z0-9._~:+/=@-]{0,127}$/;

const requestIds = new WeakMap<IncomingMessage, string>();

/** The caller's id if it is safe in a header and a log line. */
export function requestIdOf(request: IncomingMessage): string {
  const known = requestIds.get(request);
  if (known !== undefined) return known;
  const [given = '', ...more] = headerValues(request, 'x-request-id');
  const id = more.length === 0 && WELL_FORMED.test(given) ? given : createRequestId();
  requestIds.set(request, id);
  return id;
}

export function createRequestId(): string {
  return `req_${randomUUID()}`;
}

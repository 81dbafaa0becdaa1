/**
 * Reads the headers of a request: Accept, Range, conditions, Content-Type, X-Forwarded-For, dates,
 * Idempotency-Key, Prefer and X-Request-ID, and Retry-After of an answer. It is pure, but for what
 * hooks keep of a request.
 */
import { randomUUID } from 'node:crypto';
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { isIP } from 'node:net';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { contentTypeOf, type OutputFormat } from '@matting/proto/contract/formats.ts';
import { IDEMPOTENCY_KEY_LENGTH_MAX } from '@matting/proto/contract/limits.ts';
import type { FastifyRequest, onRequestHookHandler } from 'fastify';
import Negotiator from 'negotiator';

/** Browsers send 150 characters; a longer header is ignored. */
const ACCEPT_LENGTH_MAX = 1000;
/** The type of JSON answers. A range can name the charset. */
const JSON_TYPE = 'application/json; charset=utf-8';
const IMAGE_RANGE = /^image\/./;
/** Types by which callers know a format, besides its own. */
const ALIASES: Readonly<Record<string, string>> = { 'image/jpeg': 'image/jpg' };

interface AcceptHeader {
  /**
   * Chooses the first of JSON and the picture in one of these formats, the default first. 'none':
   * the caller wants a picture, but in none of these formats.
   */
  prefer(formats: readonly OutputFormat[]): OutputFormat | 'json' | 'none';
}

const JSON_ALONE: AcceptHeader = { prefer: () => 'json' };

/** @param header all Accept headers of the request, joined by commas */
function readAccept(header: string | undefined): Negotiator | undefined {
  if (header === undefined || header.length > ACCEPT_LENGTH_MAX) return undefined;
  return new Negotiator({ headers: { accept: header } });
}

/** @param header all of the request's, joined by commas */
export function acceptsJson(header: string | undefined): boolean {
  return readAccept(header)?.mediaTypes([JSON_TYPE]).length !== 0;
}

/**
 * JSON only where the client asks for that and nothing else will do: HTTP libraries send
 * `application/json, text/plain, *\/*` of themselves, and write the answer to a file.
 * @param header all of the request's, joined by commas
 * @param others types that it may prefer
 */
export function wantsJsonAlone(header: string | undefined, others: readonly string[]): boolean {
  const accept = readAccept(header);
  if (accept === undefined || accept.mediaTypes().includes('*/*')) return false;
  const [best] = accept.mediaTypes(['application/json', ...others]);
  return best === 'application/json';
}

/**
 * Whether a caller takes JSON or the picture itself, by Accept (RFC 9110 section 12.5.1).
 *
 * | Accept                                      | answer                                             |
 * |---------------------------------------------|----------------------------------------------------|
 * | none, or no image type with a quality above 0 | JSON, whatever else it takes or refuses          |
 * | with `text/html`                            | JSON: what browsers, and the HTTP clients of some  |
 * |                                             | languages, send of themselves                      |
 * | an image type, and JSON not before it       | the picture, in the format it prefers              |
 * | an image type that is not made, and no JSON | none: the request is refused                       |
 *
 * Before means: a higher quality, else named more exactly, else named first.
 * @param header all of the request's, joined by commas; what cannot be read is ignored
 */
export function acceptedAnswers(header: string | undefined): AcceptHeader {
  const negotiator = readAccept(header);
  if (negotiator === undefined) return JSON_ALONE;
  const named = negotiator.mediaTypes().map(range => range.toLowerCase());
  if (named.includes('text/html')) return JSON_ALONE;
  if (!named.some(range => IMAGE_RANGE.test(range))) return JSON_ALONE;
  return {
    prefer: formats => {
      // JSON stands first, so that a range that takes both means JSON.
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
  /** Inclusive, both. */
  readonly start: number;
  readonly end: number;
}

const ONE_RANGE = /^bytes=[ \t]*(\d*)-(\d*)[ \t]*$/i;

/**
 * The range asked for (RFC 9110 section 14). Undefined: none, several, or one that cannot be read,
 * so the whole file is sent. `unsatisfiable`: outside of the file.
 */
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

/** Identifies a file that never changes: its date is as strong a validator as its tag. */
export interface Validators {
  /** Strong, with its quotes. */
  readonly etag: string;
  /** UTC milliseconds, of a whole second, as Last-Modified says it. */
  readonly modifiedAtMs: number;
}

/** A tag, weak or strong, in a list of them. */
const TAG = /(?:W\/)?"[^"]*"/g;

/**
 * How to answer a GET or HEAD, in the order of RFC 9110 section 13.2.2: where a tag is given, the
 * date beside it is ignored; so is a date that cannot be read.
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

/** Whether a range may be sent: without If-Range, or when it names this very file. */
export function rangeStillHolds(
  ifRange: string | undefined,
  { etag, modifiedAtMs }: Validators,
): boolean {
  return ifRange === undefined || ifRange === etag || parseHttpDate(ifRange) === modifiedAtMs;
}

/** Whether a condition names this very tag, whatever it asks. */
export function namesTag(headers: IncomingHttpHeaders, etag: string): boolean {
  const conditions = [headers['if-match'], headers['if-none-match'], headers['if-range']];
  return conditions.some(list => list?.toString().includes(etag));
}

function names(list: string, etag: string, comparison: 'strong' | 'weak'): boolean {
  if (list === '*') return true;
  const weakened = comparison === 'weak' ? `W/${etag}` : etag;
  return (list.match(TAG) ?? []).some(tag => tag === etag || tag === weakened);
}

/** The type of a request or of a part of its body (RFC 9110 section 8.3). */
export interface ContentType {
  /** The type in lower case. */
  readonly type: string;
  /** The parameters by lower case names. Undefined: they are unreadable, or one comes twice. */
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
/** The characters of texts, and the escape by which some charsets go on in others. */
const ASCII = `\x1b\t\r\n${String.fromCharCode(...Array.from({ length: 95 }, (_, n) => 0x20 + n))}`;

/** Undefined: it names no type. */
export function parseContentType(text: string): ContentType | undefined {
  const type = TYPE.exec(text)?.[1];
  if (type === undefined) return undefined;
  return { type: type.toLowerCase(), parameters: readParameters(text, type.length) };
}

/**
 * The type of a request's body. Each Content-Type counts: Node keeps the first, something before us
 * may have gone by another. A charset counts only where it would make others of the bytes of ASCII.
 * @returns none: there is no body; undefined: none that is one
 */
export function bodyTypeOf(request: IncomingMessage): ContentType | 'none' | undefined {
  const given = headerValues(request, 'content-type');
  if (given.length === 0) return hasBody(request) ? undefined : 'none';
  const types = given.map(parseContentType);
  const [type] = types;
  // The tools of S3 write it so.
  if (type?.type === 'binary/octet-stream' && types.length === 1) {
    return { ...type, type: 'application/octet-stream' };
  }
  const isJson = types.every(one => one?.type === 'application/json' && extendsAscii(one));
  if (type?.type === 'application/json' && !isJson) return undefined;
  return types.length === 1 || isJson ? type : undefined;
}

/**
 * Reads the parameters by lower case names. Undefined: they are unreadable, or one comes twice.
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

/** The charset in lower case. utf-8: the type names none. */
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

/** RFC 7239 has this name for an address that nobody names. No network has it. */
const UNKNOWN_ADDRESS = 'unknown';
/** `203.0.113.9:4711`, `[2001:db8::1]:4711` and `[2001:db8::1]`. */
const WITH_PORT = /^(?:([\d.]+):\d{1,5}|\[([^\]]+)\](?::\d{1,5})?)$/;

/**
 * The onRequest hook, before anybody asks whose address a request has: some proxies put a port
 * behind an address (Azure's gateways), some pass on whatever a caller wrote. With a port each
 * connection would be an address of its own, and no bound by address would hold.
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

/** The same list of addresses alone. */
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

/** IMF-fixdate, RFC 850 and asctime; the day of the week is not checked. */
const FORMS = [
  new RegExp(`^[A-Z][a-z]{2}, (?<day>\\d\\d) ${MONTH} (?<year>\\d{4}) ${TIME} GMT$`),
  new RegExp(`^[A-Z][a-z]{5,8}, (?<day>\\d\\d)-${MONTH}-(?<year>\\d\\d) ${TIME} GMT$`),
  new RegExp(`^[A-Z][a-z]{2} ${MONTH} (?<day>[ \\d]\\d) ${TIME} (?<year>\\d{4})$`),
];

/** A year of two digits that would be further ahead than this is in the century before. */
const AHEAD_YEARS_MAX = 50;

/** UTC milliseconds; undefined for text that is no date of RFC 9110 section 5.6.7. */
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
  // The 31st of February would run over into March; a leap second is the second after.
  if (date.getUTCMonth() !== month || date.getUTCDate() !== day) return undefined;
  return date.setUTCHours(hour, minute, second);
}

/** The wait that a Retry-After asks for, in ms; 0: none, or none that can be read. */
export function waitAskedMs(header: string | undefined, nowMs: number): number {
  const text = header?.trim() ?? '';
  if (/^\d+$/.test(text)) return Number(text) * 1000;
  return Math.max(0, (parseHttpDate(text) ?? 0) - nowMs);
}

/** IMF-fixdate of the second that `timeMs` is in. */
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

/**
 * The onRequest hook. A key that is given must be valid even where it may be absent.
 * @throws ContractError INVALID_IDEMPOTENCY_KEY
 */
export function requireIdempotencyKey(options: { optional: boolean }): onRequestHookHandler {
  return (request, _reply, done) => {
    const values = headerValues(request.raw, 'idempotency-key');
    if (values.length === 0 && !options.optional) throw missingKey(request.method);
    if (values.length > 0) keys.set(request, idempotencyKeyIn(values));
    done();
  };
}

/** Only for routes with requireIdempotencyKey without `optional`. */
export function idempotencyKeyOf(request: FastifyRequest): string {
  const key = keys.get(request);
  if (key === undefined) throw new Error('a route without requireIdempotencyKey asked for its key');
  return key;
}

/**
 * @param values all that were given
 * @throws ContractError INVALID_IDEMPOTENCY_KEY
 */
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

/** Reads neither store nor compare it. */
function missingKey(method: string): ContractError {
  const isRead = method === 'GET' || method === 'HEAD';
  const send = isRead ? `Send any text, such as ${KEY_NAME}: read-1.` : ONE_KEY;
  return invalid(`The ${KEY_NAME} header is missing. ${send}`);
}

function invalid(detail: string): ContractError {
  return new ContractError('INVALID_IDEMPOTENCY_KEY', detail);
}

/** The Prefer header (RFC 7240), as far as this service honours it. */
export interface Preferences {
  /** The caller would rather have the job at once than wait for its end. */
  readonly respondAsync: boolean;
  /** How long the caller would wait. */
  readonly waitS: number | undefined;
}

/** `token [= value]` of one preference; its parameters, after a semicolon, mean nothing here. */
const PREFER_TOKEN = "([!#$%&'*+.^_`|~0-9A-Za-z-]+)";
const QUOTED_OR_PLAIN = '(?:"((?:[^"\\\\]|\\\\.)*)"|([^\\s";,]*))';
const PREFERENCE = new RegExp(
  `^${PREFER_TOKEN}[ \\t]*(?:=[ \\t]*${QUOTED_OR_PLAIN})?[ \\t]*(?:;|$)`,
);
/** RFC 7240 section 4.3 takes delta-seconds; nine digits are 31 years. */
const DELTA_SECONDS = /^\d{1,9}$/;

/** Preferences that are honoured need 30; a longer header is ignored. */
const PREFER_LENGTH_MAX = 1000;

/** Ignores what it cannot read. If a preference comes twice, the first counts. */
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
    // An empty value is the same as none.
    respondAsync: values.get('respond-async') === '',
    waitS: DELTA_SECONDS.test(wait) ? Number(wait) : undefined,
  };
}

/** The members of a list, commas inside quotes left alone. */
function splitList(text: string): string[] {
  return (text.match(/(?:"(?:[^"\\]|\\.)*"|[^,"]|")+/g) ?? []).map(member => member.trim());
}

/**
 * Every value of a header, in the order sent: Node keeps the first of some and joins others.
 * @param name in lower case
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

/** Letters and digits with what UUIDs, ULIDs, trace ids and Base64 have between them. */
const WELL_FORMED = /^[A-Za-z0-9][A-Za-z0-9._~:+/=@-]{0,127}$/;

const requestIds = new WeakMap<IncomingMessage, string>();

/** The caller's, where it sent one that is safe in a header and a log line, otherwise ours. */
export function requestIdOf(request: IncomingMessage): string {
  const known = requestIds.get(request);
  if (known !== undefined) return known;
  const [given = '', ...more] = headerValues(request, 'x-request-id');
  const id = more.length === 0 && WELL_FORMED.test(given) ? given : createRequestId();
  requestIds.set(request, id);
  return id;
}

/** Makes an id for bytes that are not a request. */
export function createRequestId(): string {
  return `req_${randomUUID()}`;
}

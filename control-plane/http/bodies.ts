/**
 * The body of a request: how one is refused, what its headers say of it, its bytes as they arrive,
 * within a bound and a pace, what is left of it when its answer is sent, and Base64 in it.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { PACE_BYTES_PER_SECOND_MIN, PACE_DEBT_MS_MAX } from '@matting/program/ports/http-guard.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { FastifyReply, FastifyRequest, onRequestHookHandler } from 'fastify';
import { hasBody } from './request-headers.ts';

/**
 * Fields of a body or a query, known or not, with a value or without: more than any interface of
 * this service has. What is read is counted, so that nothing that means nothing is free.
 */
export const FIELDS_MAX = 64;

const SHOWN_NAME_LENGTH_MAX = 64;

/** @param fieldDetail what is wrong with the field, where the sentence says more */
export function malformed(
  detail: string,
  field?: string,
  fieldDetail?: string,
  cause?: unknown,
): ContractError {
  const fieldErrors = field === undefined ? [] : [{ field, detail: fieldDetail ?? detail }];
  return new ContractError('INVALID_REQUEST', detail, { fieldErrors, cause });
}

export function tooManyFields(what: string): ContractError {
  return malformed(`${what} has more than ${FIELDS_MAX} fields.`);
}

/** A name that a caller chose, cut short for an answer. */
export function shownName(name: string): string {
  return name.slice(0, SHOWN_NAME_LENGTH_MAX).toWellFormed();
}

/** @param name undefined: too long to be kept. @param meantOf what to send in its place */
export function unknownField(
  name: string | undefined,
  meantOf?: (name: string) => string,
): ContractError {
  const shown = shownName(name ?? 'a very long name');
  const unknown = `Unknown field: ${shown}.`;
  if (meantOf === undefined) return malformed(unknown, shown, 'is unknown');
  const meant = meantOf(shown);
  return malformed(`${unknown} ${meant}`, shown, `is unknown. ${meant}`);
}

export function givenTwice(field: string): ContractError {
  return malformed(`${field} is given twice. Send it once.`, field, 'is given twice');
}

/**
 * Of a target's query, in their order, as forms write them: `+` and `%20` are spaces.
 * @throws ContractError INVALID_REQUEST: not percent-encoded UTF-8
 */
export function* parametersOf(
  target: string,
): Generator<{ readonly name: string; readonly text: string }> {
  const start = target.indexOf('?');
  if (start === -1) return;
  const pairs = target.slice(start + 1).split('&', FIELDS_MAX + 1);
  if (pairs.length > FIELDS_MAX) throw tooManyFields('The query');
  for (const pair of pairs) {
    if (pair === '') continue;
    const equals = pair.indexOf('=');
    const name = decoded(equals === -1 ? pair : pair.slice(0, equals));
    yield { name, text: equals === -1 ? '' : decoded(pair.slice(equals + 1), name) };
  }
}

function decoded(text: string, field?: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch (cause) {
    const shown = field === undefined ? undefined : shownName(field);
    const detail = 'The query is not percent-encoded UTF-8. Write a percent sign as %25.';
    throw malformed(detail, shown, 'is not percent-encoded UTF-8', cause);
  }
}

/** A string longer than every rule allows: its text was dropped. */
export const OVERLONG: unique symbol = Symbol('overlong');
export type TextValue = string | typeof OVERLONG;

/** What a text takes at most while it is kept. */
export function bytesOfText(text: TextValue): number {
  return text === OVERLONG ? 0 : 2 * text.length;
}

/**
 * The onRequest hook of an interface: the last check that needs no byte of the body. One that it
 * refuses stays unread.
 * @param of.bytesMaxOf undefined: a type that it does not take
 * @throws ContractError UNSUPPORTED_MEDIA_TYPE, IMAGE_TOO_LARGE
 */
export function requireBodyHead(of: {
  readonly accepted: string;
  readonly wanted: string;
  readonly bytesMaxOf: (request: IncomingMessage) => number | undefined;
}): onRequestHookHandler {
  return ({ raw, headers }, reply, done) => {
    if (headers['content-encoding'] !== undefined) {
      reply.header('accept-encoding', 'identity');
      const detail = 'The body has a Content-Encoding. Send it without one.';
      throw new ContractError('UNSUPPORTED_MEDIA_TYPE', detail);
    }
    const bytesMax = of.bytesMaxOf(raw);
    if (bytesMax === undefined) {
      reply.header('accept', of.accepted);
      throw new ContractError('UNSUPPORTED_MEDIA_TYPE', `The body must be ${of.wanted}.`);
    }
    if (Number(headers['content-length']) > bytesMax) throw bodyTooLarge(bytesMax);
    done();
  };
}

export function bodyTooLarge(bytesMax: number): ContractError {
  const limit = `${bytesMax / 1_048_576} MiB (${bytesMax} bytes)`;
  const detail = `The request body is too large. The limit is ${limit}.`;
  return new ContractError('IMAGE_TOO_LARGE', detail);
}

export interface BodyBounds {
  readonly bytesMax: number;
  /**
   * How far the sender may fall behind PACE_BYTES_PER_SECOND_MIN; the time in which we do not read
   * is not counted. PACE_DEBT_MS_MAX where absent.
   */
  readonly debtMsMax?: number | undefined;
  /**
   * From now until the body is whole, where it is small; PACE_BYTES_PER_SECOND_MIN alone where
   * absent.
   */
  readonly wholeMsMax?: number | undefined;
  /** A body of more bytes is not small: once they came, wholeMsMax no longer counts. */
  readonly smallBytesMax?: number | undefined;
}

/**
 * Hands on each chunk as it arrives, and resolves at the end of the body. A caller may stop sending
 * at any time, so nothing here keeps a chunk while it waits for the next one. An async generator
 * and a `for await` loop would each keep the last. The stream is left as it is on a refusal: its
 * connection still has an answer to carry.
 * @param take may answer later; the next chunk is read then
 * @throws ContractError INVALID_REQUEST, IMAGE_TOO_LARGE; what `take` throws
 */
export async function readBody(
  body: Readable,
  bounds: BodyBounds,
  take: (chunk: Buffer) => Promise<void> | void,
): Promise<void> {
  let wake: () => void = () => undefined;
  const onEvent = () => wake();
  const events = ['readable', 'end', 'error', 'close'] as const;
  for (const event of events) body.on(event, onEvent);
  const pace = new BodyPace(bounds);
  try {
    for (;;) {
      // Created before the read, so that an event between the read and the wait is not missed.
      const moved = new Promise<void>(resolve => {
        wake = resolve;
      });
      const taking = takeNext(body, pace, take);
      if (taking !== undefined) {
        await taking;
        continue;
      }
      if (body.readableEnded) return;
      if (body.destroyed) throw endedEarly(body.errored);
      const startedMs = performance.now();
      await within(moved, pace.leftMs(startedMs));
      pace.waited(performance.now() - startedMs);
    }
  } finally {
    for (const event of events) body.off(event, onEvent);
  }
}

/** A function of its own: what it read leaves with it. Undefined: nothing is there yet. */
function takeNext(
  body: Readable,
  pace: BodyPace,
  take: (chunk: Buffer) => Promise<void> | void,
): Promise<void> | undefined {
  const chunk = body.read() as Buffer | null;
  if (chunk === null) return undefined;
  pace.received(chunk.length);
  return Promise.resolve(take(chunk));
}

/** What a sender may still take its time for. */
class BodyPace {
  readonly #bounds: BodyBounds;
  readonly #wholeByMs: number;
  #receivedBytes = 0;
  #debtMs = 0;

  constructor(bounds: BodyBounds) {
    this.#bounds = bounds;
    this.#wholeByMs = performance.now() + (bounds.wholeMsMax ?? Number.POSITIVE_INFINITY);
  }

  /** @throws ContractError IMAGE_TOO_LARGE */
  received(bytes: number): void {
    const { bytesMax } = this.#bounds;
    this.#receivedBytes += bytes;
    if (this.#receivedBytes > bytesMax) throw bodyTooLarge(bytesMax);
    this.#debtMs = Math.max(0, this.#debtMs - (bytes / PACE_BYTES_PER_SECOND_MIN) * 1000);
  }

  waited(ms: number): void {
    this.#debtMs += ms;
  }

  leftMs(nowMs: number): number {
    const { debtMsMax = PACE_DEBT_MS_MAX } = this.#bounds;
    const { smallBytesMax = Number.POSITIVE_INFINITY } = this.#bounds;
    const ofDebtMs = debtMsMax - this.#debtMs;
    if (this.#receivedBytes > smallBytesMax) return ofDebtMs;
    return Math.min(ofDebtMs, this.#wholeByMs - nowMs);
  }
}

/** @throws ContractError INVALID_REQUEST */
async function within(moved: Promise<void>, leftMs: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    const refuse = () => {
      reject(new ContractError('INVALID_REQUEST', 'The request body arrived too slowly.'));
    };
    timer = setTimeout(refuse, Math.max(0, leftMs));
  });
  try {
    await Promise.race([moved, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** The caller closed the connection, so the answer is not read. */
function endedEarly(cause: Error | null): ContractError {
  return new ContractError('INVALID_REQUEST', 'The request body ended early.', { cause });
}

const DRAIN_BYTES_MAX = 1024 * 1024;
/** For callers that send slowly, or neither send nor close. */
const DRAIN_MS_MAX = 2000;

const awaitingContinue = new WeakSet<IncomingMessage>();

/** `Expect: 100-continue` is answered when the body is wanted, not when the headers have come. */
export function deferContinue(server: Server): void {
  server.on('checkContinue', (request: IncomingMessage, response: ServerResponse) => {
    awaitingContinue.add(request);
    server.emit('request', request, response);
  });
  // RFC 9110 section 10.1.1 lets a server ignore an expectation it does not know.
  server.on('checkExpectation', (request: IncomingMessage, response: ServerResponse) => {
    server.emit('request', request, response);
  });
}

/**
 * Stops reading from the connection of a body, which would otherwise keep up to two reads of 64 KiB
 * of what the caller sends meanwhile.
 * @returns what reads on
 */
export function holdBody({ socket }: IncomingMessage): () => void {
  // A stream asks its connection to flow by itself, which takes effect a tick later. A pause before
  // that would be undone, so each one follows a resume.
  const stay = () => socket.pause();
  socket.on('resume', stay);
  // A request that a test injects has a socket without these two.
  socket.pause?.();
  socket.resume?.();
  return () => {
    socket.off('resume', stay);
    socket.resume?.();
  };
}

/** Called before a body is read. */
export function wantBody(request: FastifyRequest, reply: FastifyReply): void {
  if (awaitingContinue.delete(request.raw)) reply.raw.writeContinue();
}

/**
 * The onSend hook: a request whose body is not read to its end still needs its answer to arrive.
 * What is left of a small body is read away and the connection lives on; of a large one at most
 * DRAIN_BYTES_MAX are read after the answer was written, then the connection is closed: closing
 * with bytes unread would make the system send a reset, which may overtake the answer.
 */
export function finishUnreadBody(
  request: FastifyRequest,
  reply: FastifyReply,
  payload: unknown,
  done: (error: Error | null, payload?: unknown) => void,
): void {
  const body = request.raw;
  const { headers } = request;
  const declaredBytes = Number(headers['content-length'] ?? 0);
  // Undefined where a test injects a request without a socket.
  if (!hasBody(body) || body.complete !== false || body.destroyed) {
    done(null, payload);
    return;
  }
  if (headers['transfer-encoding'] === undefined && declaredBytes <= DRAIN_BYTES_MAX) {
    body.resume();
    done(null, payload);
    return;
  }
  reply.header('connection', 'close');
  if (typeof payload !== 'string' && !Buffer.isBuffer(payload)) {
    done(null, payload);
    return;
  }
  const answer = Buffer.from(payload);
  // With its length known the caller has the whole answer before the stream below ends.
  reply.header('content-length', answer.length);
  done(null, Readable.from(answerThenDrain(answer, body), { objectMode: false }));
}

async function* answerThenDrain(answer: Buffer, body: IncomingMessage): AsyncGenerator<Buffer> {
  yield answer;
  await drain(body);
}

function drain(body: IncomingMessage): Promise<void> {
  return new Promise(resolve => {
    let drainedBytes = 0;
    const stop = () => {
      clearTimeout(timer);
      body.off('data', count);
      body.pause();
      resolve();
    };
    const count = (chunk: Buffer) => {
      drainedBytes += chunk.length;
      if (drainedBytes >= DRAIN_BYTES_MAX) stop();
    };
    const timer = setTimeout(stop, DRAIN_MS_MAX);
    body.once('end', stop).once('close', stop).once('error', stop);
    body.on('data', count);
    if (body.destroyed || body.readableEnded) stop();
  });
}

/** Entry of a byte that is no digit. */
export const NOT_HEX = 16;

/** What a byte is as a hexadecimal digit. A look-up each, since a body may be made of escapes. */
export const HEX_VALUES = new Uint8Array(256).fill(NOT_HEX);
for (let value = 0; value < 16; value += 1) {
  const digit = value.toString(16);
  HEX_VALUES[digit.charCodeAt(0)] = value;
  HEX_VALUES[digit.toUpperCase().charCodeAt(0)] = value;
}

const NOTHING = Buffer.alloc(0);
/** A data URI up to its comma. Media types with parameters stay far below. */
const DATA_URI_PREFIX_LENGTH_MAX = 1024;
const DATA_SCHEME = 'data:';
const BASE64_MARK = ';base64';
const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';

const COMMA = 0x2c;
const COLON = 0x3a;
const HYPHEN = 0x2d;
const EQUALS = 0x3d;
const UNDERSCORE = 0x5f;
/** Below it the call costs more than it saves. */
const NATIVE_LENGTH_MIN = 256;
const INVALID = 0x40;
const SPACE = 0x41;
const PAD = 0x42;
/** For each byte its 6-bit value, or INVALID, SPACE or PAD. */
const VALUES = new Uint8Array(256).fill(INVALID);
for (let value = 0; value < ALPHABET.length; value += 1) VALUES[ALPHABET.charCodeAt(value)] = value;
const SPACES = Buffer.from('\t\n\f\r ');
for (const space of SPACES) VALUES[space] = SPACE;
const NOT_SPACE = VALUES.map(value => (value === SPACE ? 0 : 1));
VALUES['='.charCodeAt(0)] = PAD;

/** The text itself where it has no white space, as almost every piece. */
function withoutSpace(text: Uint8Array): Uint8Array {
  const piece = Buffer.from(text.buffer, text.byteOffset, text.length);
  if (!SPACES.some(space => piece.includes(space))) return text;
  const dense = Buffer.allocUnsafe(text.length);
  let length = 0;
  // By indexes below the length: a body may be made of white space, and `of` takes five times as long.
  for (let index = 0; index < piece.length; index += 1) {
    const byte = piece[index]!;
    dense[length] = byte;
    length += NOT_SPACE[byte]!;
  }
  return dense.subarray(0, length);
}

/** Where the character of that index without white space is. */
function indexWithSpace(text: Uint8Array, index: number): number {
  let left = index;
  return text.findIndex(byte => VALUES[byte] !== SPACE && left-- === 0);
}

/**
 * All whole groups, by Node's decoder, which takes a third of the time. It skips what it does not
 * know, so that fewer bytes come out than the characters have, and knows the URL-safe alphabet too.
 * @returns how many groups; 0: not all are of the alphabet
 */
function nativeGroups(text: Uint8Array, index: number, out: Buffer, written: number): number {
  let length = (text.length - index) & ~3;
  if (text[index + length - 1] === EQUALS) length -= 4;
  if (length < NATIVE_LENGTH_MIN) return 0;
  const piece = Buffer.from(text.buffer, text.byteOffset + index, length);
  if (piece.includes(HYPHEN) || piece.includes(UNDERSCORE)) return 0;
  const bytes = out.write(piece.toString('latin1'), written, 'base64');
  return bytes === (length / 4) * 3 ? length / 4 : 0;
}

type Base64State = 'start' | 'prefix' | 'body' | 'padding' | 'ended';

/**
 * Base64 as the contract takes it, decoded while it arrives: RFC 4648 section 4, padding optional,
 * ASCII white space skipped, the URL-safe alphabet refused, a `data:<media type>;base64,` prefix
 * ignored. Bits that the last character has too many are dropped, as RFC 4648 section 3.5 allows:
 * what counts is the decoded bytes. It sets no bound on size: its caller does.
 *
 * | state   | meaning                                 | left by                                   |
 * |---------|-----------------------------------------|-------------------------------------------|
 * | start   | the text so far may be a `data:` prefix | its colon, or the first other character   |
 * | prefix  | inside the data URI's media type        | its comma                                 |
 * | body    | characters of the alphabet              | `=`                                       |
 * | padding | one `=` came, a second is due           | `=`                                       |
 * | ended   | only white space may follow             | -                                         |
 */
export class Base64Decoder {
  readonly #field: string;
  #state: Base64State = 'start';
  /** Characters held back in the states start (white space left out) and prefix. */
  #held = '';
  /** Bits of an incomplete group, and the number of its characters. */
  #group = 0;
  #groupLength = 0;
  /** Characters before the text that is decoded now. */
  #inputOffset = 0;
  #decodedBytes = 0;

  /** @param field the request's field, for the error's `errors[]`. */
  constructor(field = 'image_base64') {
    this.#field = field;
  }

  get decodedBytes(): number {
    return this.#decodedBytes;
  }

  /**
   * The bytes that `chunk` completes: a buffer of its own, possibly empty.
   * @throws ContractError INVALID_IMAGE_SOURCE; the decoder is not to be used after that
   */
  push(chunk: Uint8Array): Uint8Array {
    const inStart = this.#state === 'start' || this.#state === 'prefix';
    return this.#decode(inStart ? this.#takeStart(chunk) : chunk);
  }

  /** The bytes still held back at the end of the text. @throws ContractError INVALID_IMAGE_SOURCE */
  finish(): Uint8Array {
    if (this.#state === 'prefix') throw this.#error('the data URI has no comma');
    const out = this.#state === 'start' ? this.#decode(this.#releaseHeld()) : NOTHING;
    if (this.#state === 'padding') throw this.#error('the padding is incomplete');
    if (this.#groupLength === 1)
      throw this.#error('the text ends inside a group of four characters');
    const rest = this.#takeGroup();
    this.#decodedBytes += rest.length;
    if (this.#decodedBytes === 0) throw this.#error('the text is empty');
    return rest.length === 0 ? out : Buffer.concat([out, rest]);
  }

  /** The rest of the chunk, after what the states start and prefix take of it. */
  #takeStart(chunk: Uint8Array): Uint8Array {
    for (let index = 0; index < chunk.length; index += 1) {
      const byte = chunk[index]!;
      if (this.#state === 'prefix') {
        this.#takePrefixCharacter(byte);
      } else if (this.#state !== 'start') {
        this.#inputOffset += index;
        return chunk.subarray(index);
      } else if (this.#startsBody(byte)) {
        const held = this.#releaseHeld();
        this.#inputOffset += index + 1 - held.length;
        return Buffer.concat([held, chunk.subarray(index + 1)]);
      }
    }
    this.#inputOffset += chunk.length;
    return NOTHING;
  }

  /** True where this character shows that the text is not a data URI. */
  #startsBody(byte: number): boolean {
    if (VALUES[byte] === SPACE) return false;
    this.#held += String.fromCharCode(byte);
    const start = this.#held.toLowerCase();
    if (start !== DATA_SCHEME) return !DATA_SCHEME.startsWith(start);
    this.#held = '';
    this.#state = 'prefix';
    return false;
  }

  #takePrefixCharacter(byte: number): void {
    if (byte === COMMA) {
      this.#endPrefix();
      return;
    }
    if (this.#held.length === DATA_URI_PREFIX_LENGTH_MAX) {
      throw this.#error(
        `the data URI has a prefix of over ${DATA_URI_PREFIX_LENGTH_MAX} characters`,
      );
    }
    this.#held += String.fromCharCode(byte);
  }

  #endPrefix(): void {
    if (!this.#held.toLowerCase().trimEnd().endsWith(BASE64_MARK)) {
      throw this.#error('the data URI has no ;base64');
    }
    this.#held = '';
    this.#state = 'body';
  }

  /** The text is not a data URI: the characters held back are Base64 like the rest. */
  #releaseHeld(): Buffer {
    const held = Buffer.from(this.#held, 'latin1');
    this.#held = '';
    this.#state = 'body';
    return held;
  }

  #decode(spaced: Uint8Array): Uint8Array {
    const text = withoutSpace(spaced);
    const out = Buffer.allocUnsafe(Math.ceil((this.#groupLength + text.length) / 4) * 3);
    let written = 0;
    let index = 0;
    let isFresh = true;
    const refuse = (wrong: string) => {
      const position = this.#inputOffset + indexWithSpace(spaced, index) + 1;
      return this.#error(`character ${position} ${wrong}`);
    };
    while (index < text.length) {
      if (isFresh && this.#groupLength === 0 && this.#state === 'body') {
        // Once: what is left then is a few characters, or has one that is refused.
        isFresh = false;
        const groups = nativeGroups(text, index, out, written);
        index += 4 * groups;
        written += 3 * groups;
        if (index === text.length) break;
      }
      // Below the length, by the conditions above.
      const group = this.#decodeOne(text[index]!, refuse);
      if (group !== undefined) {
        out.set(group, written);
        written += group.length;
      }
      index += 1;
    }
    this.#inputOffset += spaced.length;
    this.#decodedBytes += written;
    return out.subarray(0, written);
  }

  /** The group that the character completes. */
  #decodeOne(byte: number, refuse: (wrong: string) => ContractError): Uint8Array | undefined {
    const value = VALUES[byte]!;
    if (value === PAD) {
      this.#takePadding(refuse);
      return this.#state === 'ended' ? this.#takeGroup() : undefined;
    }
    if (byte === COLON) throw refuse('is a colon. Send an address as image_url');
    if (value >= 64) throw refuse('is not in the Base64 alphabet');
    if (this.#state !== 'body') throw refuse('follows the padding');
    this.#group = (this.#group << 6) | value;
    this.#groupLength += 1;
    return this.#groupLength === 4 ? this.#takeGroup() : undefined;
  }

  #takePadding(refuse: (wrong: string) => ContractError): void {
    if (this.#state === 'padding') {
      this.#state = 'ended';
      return;
    }
    if (this.#state !== 'body' || this.#groupLength < 2) {
      throw refuse('is misplaced padding');
    }
    this.#state = this.#groupLength === 2 ? 'padding' : 'ended';
  }

  /** The bytes of a group, all of its characters or the last two or three of the text. */
  #takeGroup(): Uint8Array {
    const bits = this.#group << (6 * (4 - this.#groupLength));
    const bytes = Math.max(0, this.#groupLength - 1);
    this.#group = 0;
    this.#groupLength = 0;
    return Uint8Array.of(bits >>> 16, bits >>> 8, bits).subarray(0, bytes);
  }

  #error(cause: string): ContractError {
    const wrong = `is not Base64: ${cause}`;
    const fieldErrors = [{ field: this.#field, detail: wrong }];
    return new ContractError('INVALID_IMAGE_SOURCE', `${this.#field} ${wrong}.`, { fieldErrors });
  }
}

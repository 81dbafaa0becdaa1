import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import { PACE_BYTES_PER_SECOND_MIN, PACE_DEBT_MS_MAX } from '@matting/program/ports/reader-pace.ts';
import { within } from '@matting/program/waiting.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { onRequestHookHandler } from 'fastify';
import { type ContentType, headerValues, parseContentType } from './request-headers.ts';

/**
 * The last check that needs no byte of the body. A refused body stays unread.
 * @param of.wanted follows "Send" in the refusal
 * @param of.bytesMaxOf undefined: the interface does not take the type
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
      const named = parseContentType(headers['content-type'] ?? '');
      const isPairs = named?.type === 'application/x-www-form-urlencoded';
      const advice = isPairs ? byCurl(of.accepted) : '';
      const detail = `The Content-Type header ${wrongType(raw, named)}. Send ${of.wanted}.${advice}`;
      throw new ContractError('UNSUPPORTED_MEDIA_TYPE', detail);
    }
    requireDeclaredBytes(raw, bytesMax);
    done();
  };
}

const SHOWN_TYPE = /^[\w.+/; =-]{1,100}$/;

/** Follows "The Content-Type header". */
function wrongType(request: IncomingMessage, named: ContentType | undefined): string {
  const { length } = headerValues(request, 'content-type');
  if (length === 0) return 'is missing';
  if (length > 1) return 'is given more than once';
  const charset = named?.parameters?.get('charset');
  const shown = `${named?.type}${charset === undefined ? '' : `; charset=${charset}`}`;
  const isShown = named !== undefined && SHOWN_TYPE.test(shown);
  return `names ${isShown ? shown : 'a type'}, which is not supported here`;
}

/** curl and PHP send application/x-www-form-urlencoded by default, even with a file. */
function byCurl(accepted: string): string {
  const [type] = accepted.split(', ').filter(one => !one.endsWith('*'));
  const form = accepted.includes('multipart/form-data')
    ? ', or send a form by -F. In PHP, give CURLOPT_POSTFIELDS an array'
    : '';
  return ` With curl, name the type by -H 'Content-Type: ${type}'${form}.`;
}

/** @throws ContractError IMAGE_TOO_LARGE */
export function requireDeclaredBytes({ headers }: IncomingMessage, bytesMax: number): void {
  if (Number(headers['content-length']) > bytesMax) throw bodyTooLarge(bytesMax);
}

function bodyTooLarge(bytesMax: number): ContractError {
  const limit = `${bytesMax / 1_048_576} MiB (${bytesMax} bytes)`;
  const detail = `The request body is too large. The limit is ${limit}.`;
  return new ContractError('IMAGE_TOO_LARGE', detail);
}

export interface BodyBounds {
  readonly bytesMax: number;
  /**
   * How far the sender may fall behind PACE_BYTES_PER_SECOND_MIN. Time in which we do not read does
   * not count. Absent: PACE_DEBT_MS_MAX.
   */
  readonly debtMsMax?: number | undefined;
  /** Longest time until a small body is whole. */
  readonly wholeMsMax?: number | undefined;
  /** Largest small body, to which wholeMsMax applies. */
  readonly smallBytesMax?: number | undefined;
}

/**
 * Passes each chunk to `take` as it arrives. A caller may fall silent at any time, so nothing here
 * keeps a chunk while it waits for the next; an async generator or a `for await` loop would keep
 * the last one. A refusal leaves the stream open, because its connection still carries the answer.
 * @throws ContractError INVALID_REQUEST, IMAGE_TOO_LARGE; errors of `take`
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
      // Created before the read, so that no event between the read and the wait is missed.
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
      await within(moved, Math.max(0, pace.leftMs(startedMs)), tooSlow);
      pace.waited(performance.now() - startedMs);
    }
  } finally {
    for (const event of events) body.off(event, onEvent);
  }
}

/** A function of its own, so that the chunk is not referenced after it. undefined: no bytes yet. */
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

class BodyPace {
  readonly #bounds: BodyBounds;
  readonly #wholeByMs: number;
  #receivedBytes = 0;
  #debtMs = 0;

  constructor(bounds: BodyBounds) {
    this.#bounds = bounds;
    this.#wholeByMs = performance.now() + (bounds.wholeMsMax ?? Number.POSITIVE_INFINITY);
  }

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

function tooSlow(): ContractError {
  return new ContractError('INVALID_REQUEST', 'The request body arrived too slowly.');
}

function endedEarly(cause: Error | null): ContractError {
  return new ContractError('INVALID_REQUEST', 'The request body ended early.', { cause });
}

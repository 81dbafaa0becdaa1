/** The bytes of a request's body as they arrive, within its bound and at no less than a pace. */
import type { Readable } from 'node:stream';
import { ContractError } from '#contract/errors.ts';
import { PACE_BYTES_PER_SECOND_MIN, PACE_DEBT_MS_MAX } from '#program/ports/http-guard.ts';
import { bodyTooLarge } from './body-head.ts';

export interface BodyBounds {
  readonly bytesMax: number;
  /**
   * How far the sender may fall behind PACE_BYTES_PER_SECOND_MIN; the time in which we do not read
   * is not counted. PACE_DEBT_MS_MAX where absent.
   */
  readonly debtMsMax?: number | undefined;
  /** From now until the body is whole, where it is small; PACE_BYTES_PER_SECOND_MIN alone where absent. */
  readonly wholeMsMax?: number | undefined;
}

/**
 * Ends with the body. The stream is left as it is on a refusal, and where its reader ends early:
 * its connection still has an answer to carry.
 * @throws ContractError INVALID_REQUEST, IMAGE_TOO_LARGE
 */
export async function* bodyChunks(
  body: Readable,
  { bytesMax, debtMsMax = PACE_DEBT_MS_MAX, wholeMsMax = Number.POSITIVE_INFINITY }: BodyBounds,
): AsyncGenerator<Buffer, void, void> {
  let receivedBytes = 0;
  for await (const chunk of chunksOf(body, { debtMsMax, wholeMsMax })) {
    receivedBytes += chunk.length;
    if (receivedBytes > bytesMax) throw bodyTooLarge(bytesMax);
    yield chunk;
  }
}

/** Not the stream's own iterator: one that waits for a chunk cannot be ended without the stream. */
async function* chunksOf(
  body: Readable,
  { debtMsMax, wholeMsMax }: { readonly debtMsMax: number; readonly wholeMsMax: number },
): AsyncGenerator<Buffer> {
  let wake: () => void = () => undefined;
  const onEvent = () => wake();
  const events = ['readable', 'end', 'error', 'close'] as const;
  for (const event of events) body.on(event, onEvent);
  const wholeByMs = performance.now() + wholeMsMax;
  let debtMs = 0;
  try {
    for (;;) {
      // Created before the read, so that an event between the read and the wait is not missed.
      const moved = new Promise<void>(resolve => {
        wake = resolve;
      });
      const chunk = body.read() as Buffer | null;
      if (chunk !== null) {
        debtMs = Math.max(0, debtMs - (chunk.length / PACE_BYTES_PER_SECOND_MIN) * 1000);
        yield chunk;
        continue;
      }
      if (body.readableEnded) return;
      if (body.destroyed) throw endedEarly(body.errored);
      const startedMs = performance.now();
      await within(moved, Math.min(debtMsMax - debtMs, wholeByMs - startedMs));
      debtMs += performance.now() - startedMs;
    }
  } finally {
    for (const event of events) body.off(event, onEvent);
  }
}

/** @throws ContractError INVALID_REQUEST */
async function within(moved: Promise<void>, leftMs: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    const refuse = () => {
      reject(new ContractError('INVALID_REQUEST', 'the request body came too slowly'));
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
  return new ContractError('INVALID_REQUEST', 'the request body ended early', { cause });
}

/** Moves a request's body through the parser, chunk by chunk, into its fields and its upload. */
import type { Readable } from 'node:stream';
import { ContractError } from '#contract/errors.ts';
import { REQUEST_BODY_BYTES_MAX } from '#contract/limits.ts';
import { PACE_BYTES_PER_SECOND_MIN, PACE_DEBT_MS_MAX } from '#program/ports/reading-pace.ts';
import type { MattingFields } from '../../services/submission/submit-fields.ts';
import type { ImageUpload } from '../../services/submission/submit-upload.ts';
import { bodyTooLarge } from './json-body.ts';
import { MattingBodyParser } from './matting-body.ts';

/**
 * Resolves at the end of the body. The stream is left as it is on a refusal: its connection still
 * has an answer to carry. The upload is the caller's to commit or abort.
 * @param debtMsMax how far the sender may fall behind PACE_BYTES_PER_SECOND_MIN; the time in which
 *   we do not read is not counted
 * @throws ContractError INVALID_REQUEST, IMAGE_TOO_LARGE, SERVICE_UNAVAILABLE
 */
export async function readMattingBody(
  body: Readable,
  upload: ImageUpload,
  debtMsMax = PACE_DEBT_MS_MAX,
): Promise<MattingFields> {
  const parser = new MattingBodyParser();
  let receivedBytes = 0;
  for await (const chunk of chunksOf(body, debtMsMax)) {
    receivedBytes += chunk.length;
    if (receivedBytes > REQUEST_BODY_BYTES_MAX) throw bodyTooLarge();
    const text = parser.push(chunk);
    if (text.length > 0) await upload.write(text);
  }
  return parser.finish();
}

/** Not the stream's own iterator: one that waits for a chunk cannot be ended without the stream. */
async function* chunksOf(body: Readable, debtMsMax: number): AsyncGenerator<Buffer> {
  let wake: () => void = () => undefined;
  const onEvent = () => wake();
  const events = ['readable', 'end', 'error', 'close'] as const;
  for (const event of events) body.on(event, onEvent);
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
      await withinDebt(moved, debtMsMax - debtMs);
      debtMs += performance.now() - startedMs;
    }
  } finally {
    for (const event of events) body.off(event, onEvent);
  }
}

/** @throws ContractError INVALID_REQUEST */
async function withinDebt(moved: Promise<void>, leftMs: number): Promise<void> {
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

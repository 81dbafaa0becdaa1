/**
 * A finished job as remove.bg's clients read it: the picture, or JSON with the picture in it, and
 * what was seen and charged in headers.
 */
import { Readable } from 'node:stream';
import type { Box } from '#contract/finishing.ts';
import type { Job } from '../core/jobs/job.ts';
import type { ResultFile } from '../core/results/result-download.ts';

/** Of the result, in pixels, where no subject was seen. */
const NOWHERE: Box = { top: 0, left: 0, width: 0, height: 0 };

export interface RemovebgAnswer {
  readonly job: Job;
  /** Whether this request made the job, and so is charged for it. */
  readonly created: boolean;
  readonly saysType: boolean;
  /** Names of fields that were skipped. */
  readonly unknown: readonly string[];
}

/** The headers of a picture and of its JSON alike. */
export function removebgHeaders(answer: RemovebgAnswer): Record<string, string> {
  const { job, created, saysType, unknown } = answer;
  const { result } = job;
  if (result === null) throw new Error(`job ${job.id} succeeded without a result`);
  const largest = largestOf(job);
  const foreground = foregroundOf(job);
  return {
    'x-width': String(result.width),
    'x-height': String(result.height),
    'x-max-width': String(largest.width),
    'x-max-height': String(largest.height),
    ...(saysType ? { 'x-type': 'other' } : {}),
    ...(foreground === undefined
      ? {}
      : {
          'x-foreground-top': String(foreground.top),
          'x-foreground-left': String(foreground.left),
          'x-foreground-width': String(foreground.width),
          'x-foreground-height': String(foreground.height),
        }),
    'x-credits-charged': created ? '1' : '0',
    'x-job-id': job.id,
    ...(unknown.length === 0 ? {} : { 'x-ignored-fields': unknown.join(', ') }),
  };
}

/** The size of the result without a bound of `size`, as far as the job knows it. */
function largestOf({ result, finishing }: Job): { width: number; height: number } {
  const isCut = finishing?.crop !== undefined || finishing?.sizeMaxMegapixels === undefined;
  const sight = result?.sight;
  if (isCut || !sight) return { width: result?.width ?? 0, height: result?.height ?? 0 };
  return { width: sight.inputWidth, height: sight.inputHeight };
}

/** undefined: the node did not say. */
function foregroundOf({ result }: Job): Box | undefined {
  if (!result?.sight) return undefined;
  return result.sight.subject?.resultBox ?? NOWHERE;
}

/** The same as JSON: a stream of `bytes` bytes, made while the file is read. */
export function removebgJson(
  job: Job,
  file: Pick<ResultFile, 'bytes'>,
  picture: Readable,
): { readonly bytes: number; readonly body: Readable } {
  const { top, left, width, height } = foregroundOf(job) ?? NOWHERE;
  const start = '{"data":{"result_b64":"';
  const end =
    `","foreground_top":${top},"foreground_left":${left},` +
    `"foreground_width":${width},"foreground_height":${height}}}`;
  const body = Readable.from(base64Json(start, picture, end), { objectMode: false });
  // A reader that is gone before the first piece leaves a generator that never began.
  body.once('close', () => picture.destroy());
  return { bytes: start.length + base64Length(file.bytes) + end.length, body };
}

async function* base64Json(start: string, picture: Readable, end: string): AsyncGenerator<string> {
  yield start;
  // What is left of three bytes waits for the next piece.
  let left: Buffer = Buffer.alloc(0);
  for await (const piece of picture as AsyncIterable<Buffer>) {
    const bytes = left.length === 0 ? piece : Buffer.concat([left, piece]);
    const whole = bytes.length - (bytes.length % 3);
    left = Buffer.from(bytes.subarray(whole));
    yield bytes.toString('base64', 0, whole);
  }
  yield `${left.toString('base64')}${end}`;
}

/** Characters of Base64 for so many bytes. */
function base64Length(bytes: number): number {
  return 4 * Math.ceil(bytes / 3);
}

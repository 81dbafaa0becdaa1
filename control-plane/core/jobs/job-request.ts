/** The part of a job that its caller sent. */
import type { Channels, Finishing, Size } from '@matting/proto/contract/finishing.ts';
import type { InputFormat, OutputFormat } from '@matting/proto/contract/formats.ts';
import type { Hints } from '@matting/proto/contract/hints.ts';

export interface JobInput {
  readonly blob: string;
  readonly bytes: number;
  readonly format: InputFormat;
  /** The width is as stored in the file; it is null if the header does not show it. */
  readonly width: number | null;
  readonly height: number | null;
}

export interface JobBackground {
  /** null for an upload, and once the job is final. */
  readonly url: string | null;
  /** null until it is stored, and again once the job is final. */
  readonly input: JobInput | null;
}

/** The fields of the request; submission writes them, and the end erases files and URLs. */
export interface JobRequest {
  /** SHA-256, hexadecimal; null once a retryable failure freed the key. */
  readonly idempotencyKeyHash: string | null;
  readonly fingerprint: string;
  /** The trace of its submission (program/tracing/active-span.ts); null: none. */
  readonly traceContext: string | null;
  /** The caller's own name for it, NFC; null: none, or its caller deleted it. */
  readonly reference: string | null;
  /** null for Base64 and once the job is final. */
  readonly sourceUrl: string | null;
  /** null until it is stored, and again once the job is final. */
  readonly input: JobInput | null;
  readonly outputFormat: OutputFormat;
  /** The plan or model that the request named; null: none. */
  readonly model: string | null;
  /** If no subject is seen, `fail` makes it fail with NO_SUBJECT; null: it has a result. */
  readonly noSubject: 'fail' | null;
  readonly channels: Channels;
  /** null: a plain cut-out. Empty where the format or `channels` alone is another. */
  readonly finishing: Finishing | null;
  /** Null if `finishing` has no background picture, and once the job is final. */
  readonly background: JobBackground | null;
  /** null: the request says nothing of the subject; and once the job is final. */
  readonly hints: Hints | null;
  /** The file of hints that are a picture; null as above. */
  readonly hintsFile: JobInput | null;
}

export function sizeOf({ width, height }: Pick<JobInput, 'width' | 'height'>): Size | undefined {
  return width === null || height === null ? undefined : { width, height };
}

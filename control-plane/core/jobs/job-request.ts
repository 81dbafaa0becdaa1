import type { Channels, Finishing, Size } from '@matting/proto/contract/finishing.ts';
import type { InputFormat, OutputFormat } from '@matting/proto/contract/formats.ts';
import type { Hints } from '@matting/proto/contract/hints.ts';

export interface JobInput {
  readonly blob: string;
  readonly bytes: number;
  readonly format: InputFormat;
  /** Pixels as stored in the file, before orientation; null if the header does not show them. */
  readonly width: number | null;
  readonly height: number | null;
}

export interface JobBackground {
  /** null for an upload. */
  readonly url: string | null;
  /** null before it is stored. */
  readonly input: JobInput | null;
}

/** Files, URLs and hints are null in a final job. */
export interface JobRequest {
  /** SHA-256, hexadecimal; null without a key, and after a retryable failure freed it. */
  readonly idempotencyKeyHash: string | null;
  readonly fingerprint: string;
  /** The trace of its submission (program/tracing/active-span.ts). */
  readonly traceContext: string | null;
  /** In NFC; null also after the caller deleted the job. */
  readonly reference: string | null;
  /** null for an upload. */
  readonly sourceUrl: string | null;
  /** null before it is stored. */
  readonly input: JobInput | null;
  readonly outputFormat: OutputFormat;
  readonly model: string | null;
  /** `fail`: without a visible subject the job fails with NO_SUBJECT; null: it succeeds. */
  readonly noSubject: 'fail' | null;
  readonly channels: Channels;
  /** null: a plain cut-out. Empty if only the format or `channels` differs from that. */
  readonly finishing: Finishing | null;
  readonly background: JobBackground | null;
  readonly hints: Hints | null;
  /** If the hints are a picture. */
  readonly hintsFile: JobInput | null;
}

export function sizeOf({ width, height }: Pick<JobInput, 'width' | 'height'>): Size | undefined {
  return width === null || height === null ? undefined : { width, height };
}

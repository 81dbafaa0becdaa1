import type { UsedModel } from '@matting/nodes/attempt-outcome.ts';
import type { Sight } from '@matting/proto/contract/finishing.ts';
import type { OutputFormat } from '@matting/proto/contract/formats.ts';
import type { JobFailure } from '@matting/queue/job.ts';

export interface JobResult {
  readonly blob: string;
  /** SHA-256 of the token in the result's link. */
  readonly token: string;
  readonly sealedToken: string;
  readonly format: OutputFormat;
  readonly bytes: number;
  readonly width: number;
  readonly height: number;
  /** Hexadecimal; the link's ETag. */
  readonly sha256: string;
  readonly sight: Sight | null;
  /** null: the result is older than this field. */
  readonly models: readonly UsedModel[] | null;
  readonly thumbnailBytes: number | null;
}

/** Milliseconds by stage (proto/contract/stages.ts). */
export type StageTimings = Readonly<Record<string, number>>;

/** Its fields are null while the job is open. */
export interface JobOutcome {
  readonly result: JobResult | null;
  readonly resultModels: JobResult['models'];
  /** Until then the result needs a look; null also after somebody looked. */
  readonly lookUntilMs: number | null;
  readonly failure: JobFailure | null;
  readonly timings: StageTimings | null;
}

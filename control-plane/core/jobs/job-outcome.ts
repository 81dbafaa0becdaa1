/** The part of a job that its attempts leave: a result or a failure. */
import type { UsedModel } from '@matting/nodes/attempt-outcome.ts';
import type { Sight } from '@matting/proto/contract/finishing.ts';
import type { OutputFormat } from '@matting/proto/contract/formats.ts';
import type { JobFailure } from '@matting/queue/job.ts';

export interface JobResult {
  readonly blob: string;
  /** SHA-256 of the link's unguessable part. */
  readonly token: string;
  readonly sealedToken: string;
  readonly format: OutputFormat;
  readonly bytes: number;
  readonly width: number;
  readonly height: number;
  /** Hexadecimal; the link's ETag. */
  readonly sha256: string;
  readonly sight: Sight | null;
  /** null: a version before this field made the result. */
  readonly models: readonly UsedModel[] | null;
  /** null: there is none. */
  readonly thumbnailBytes: number | null;
}

/** Milliseconds of each stage, for people and for Server-Timing. */
export type StageTimings = Readonly<Record<string, number>>;

/** Null while the job is open. */
export interface JobOutcome {
  readonly result: JobResult | null;
  /** Models that made the result. Kept after the result expires. */
  readonly resultModels: JobResult['models'];
  /** Until then the result needs a look; null: it needs none, or somebody looked. */
  readonly lookUntilMs: number | null;
  readonly failure: JobFailure | null;
  readonly timings: StageTimings | null;
}

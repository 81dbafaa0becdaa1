/** A job's corrections (docs/adr/0052). */
import type { JobInput } from './job-request.ts';

/** A correction begins with this matte in place of a run of the models. */
export interface StoredMatte {
  readonly blob: string;
  readonly bytes: number;
}

/** A model runs on crops around hints that the matte does not follow (docs/adr/0062). */
export interface CropRun {
  /** The plan or model that the first job named; absent: the node's own plan. */
  readonly model?: string;
}

export interface JobCorrection {
  readonly of: string;
  /** The family's first job, which keeps the input. */
  readonly first: string;
  /** null once the job is final. */
  readonly matte: StoredMatte | null;
  /** Absent: its hints need no such run, or the job is final. */
  readonly cropRun?: CropRun | undefined;
}

/** Files for corrections, kept until the first job's result expires. */
export interface JobKept {
  /** null in a correction. */
  readonly input: JobInput | null;
  readonly matte: StoredMatte;
  readonly untilMs: number;
}

export interface FamilyJob {
  /** Finishing fields that corrections inherit; null: the job takes no corrections. */
  readonly correctable: Readonly<Record<string, string>> | null;
  readonly correction: JobCorrection | null;
  readonly kept: JobKept | null;
  /** Corrections made in its family; 0 in a correction. */
  readonly corrections: number;
}

/** The part of a job that its corrections share (docs/adr/0052). */
import type { JobInput } from './job-request.ts';

/** The matte that a node made, as it came: a later job begins with it in place of a model's. */
export interface StoredMatte {
  readonly blob: string;
  readonly bytes: number;
}

/** A model looks at crops around hints that the matte does not follow (docs/adr/0062). */
export interface CropRun {
  /** The plan or model that the first job named; absent: the node's own plan. */
  readonly model?: string;
}

/** The job corrects another one; the first is the job whose input all its corrections share. */
export interface JobCorrection {
  readonly of: string;
  readonly first: string;
  /** null once the job is final. */
  readonly matte: StoredMatte | null;
  /** Its hints may need this; absent: they do not, or the job is final. */
  readonly cropRun?: CropRun | undefined;
}

/** A job keeps these for its corrections as long as the first one's result lives. */
export interface JobKept {
  /** null: the first of the family has it. */
  readonly input: JobInput | null;
  readonly matte: StoredMatte;
  readonly untilMs: number;
}

export interface FamilyJob {
  /** Texts of finishing fields that its corrections take over; null: it takes no corrections. */
  readonly correctable: Readonly<Record<string, string>> | null;
  /** null: it corrects none. */
  readonly correction: JobCorrection | null;
  /** null: nothing is kept. */
  readonly kept: JobKept | null;
  /** So many corrections were made of it and of its corrections. */
  readonly corrections: number;
}

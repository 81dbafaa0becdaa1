/**
 * Types of the REST interface (docs/requests.md, docs/finishing.md). Fields of a later service pass
 * through.
 */
import type { FinishingFields } from './finishing-fields.ts';

/** A stream is read to its end first, because a retry sends it again. */
export type ImageBytes =
  | Uint8Array
  | ArrayBuffer
  | Blob
  | ReadableStream<Uint8Array>
  | AsyncIterable<Uint8Array>;

/** Bytes, or an http(s) address. For a path, use `readImage` of `matting-client/files`. */
export type ImageSource = ImageBytes | URL | string;

/** `jpeg` needs an opaque background. */
export type OutputFormat = 'png' | 'webp' | 'avif' | 'jxl' | 'jpeg';

/** In pixels of the upright image. A line of one point is a dot. */
export type HintShape =
  | { readonly box: readonly [left: number, top: number, right: number, bottom: number] }
  | { readonly line: readonly (readonly [x: number, y: number])[]; readonly radius: number };

/** Absent and undefined fields are not sent. */
export interface MattingFields extends FinishingFields {
  /** Default: `png`. */
  readonly output_format?: OutputFormat | undefined;
  /** A name from `listModels`. Default: the service's. */
  readonly model?: string | undefined;
  /** `fail`: without a subject the job fails with NO_SUBJECT and costs nothing. */
  readonly no_subject?: 'fail' | undefined;
  /** The subject's box, `x1 y1 x2 y2`, in pixels of the upright image or in %. */
  readonly subject_box?: string | undefined;
  /** Parts of the subject. `keep` and `erase` have at most 64 shapes together. */
  readonly keep?: readonly HintShape[] | undefined;
  /** Not parts of the subject. */
  readonly erase?: readonly HintShape[] | undefined;
  /** A PNG or WebP without alpha, instead of `keep` and `erase`: white keeps, black erases. */
  readonly hints_file?: ImageBytes | undefined;
  /** Your name for the job, 1 to 128 characters, not necessarily unique. */
  readonly reference?: string | undefined;
  /** Keeps input and matte as long as the result, for `correct`. */
  readonly correctable?: boolean | undefined;
  /** A picture behind the subject. Send at most one of the three backgrounds. */
  readonly background_file?: ImageBytes | undefined;
  /** Called when the job ends. Needs `callback_secret`. */
  readonly callback_url?: string | undefined;
  /** 24 to 128 printable ASCII characters, or `whsec_` and the Base64 of 24 to 64 bytes. */
  readonly callback_secret?: string | undefined;
}

/** Absent fields are the corrected job's, except a background picture. */
export type CorrectionFields = Omit<
  MattingFields,
  'model' | 'no_subject' | 'correctable' | 'subject_box'
>;

interface JobBase {
  readonly job_id: string;
  /** The caller's name for the job. Absent: it has none, or was deleted. */
  readonly reference?: string;
  /** The id of the corrected job. */
  readonly corrects?: string;
  /** The batch, and the position of its item from 0. */
  readonly batch_id?: string;
  readonly item?: number;
  /** ISO 8601, UTC. */
  readonly created_at: string;
  readonly started_at: string | null;
  readonly finished_at: string | null;
  readonly status_url: string;
  readonly credits: Credits;
  readonly callback?: Callback;
}

export interface QueuedJob extends JobBase {
  readonly status: 'queued';
  readonly sync_timeout?: boolean;
}

export interface ProcessingJob extends JobBase {
  readonly status: 'processing';
  readonly sync_timeout?: boolean;
}

export interface SucceededJob extends JobBase {
  readonly status: 'succeeded';
  readonly result: Result;
  readonly models?: readonly JobModel[];
}

export interface ExpiredJob extends JobBase {
  readonly status: 'expired';
  /** When the job was deleted. Absent: its result expired. */
  readonly deleted_at?: string;
  readonly models?: readonly JobModel[];
}

export interface FailedJob extends JobBase {
  readonly status: 'failed';
  readonly error: JobError;
}

/** Distinguished by `status`. */
export type Job = QueuedJob | ProcessingJob | SucceededJob | ExpiredJob | FailedJob;

export interface Credits {
  readonly reserved: number;
  readonly charged: number;
}

export interface Result {
  /** The link needs no key, so treat it like the file. */
  readonly url: string;
  readonly format: OutputFormat;
  readonly contentType: string;
  readonly sizeBytes: number;
  /** Pixels. */
  readonly width: number;
  readonly height: number;
  /** null: no subject, or not reported. */
  readonly subject: Subject | null;
  /** Usually empty. Check it before you use the result. */
  readonly warnings: readonly ResultWarning[];
  /** From then on the link answers 410. */
  readonly expiresAt: string;
}

/**
 * `no_subject`: the result is empty or nearly so. `subject_unsure`: much of it is half transparent.
 * `subject_cut_off`: the subject reaches the picture's edge. A later service may add some.
 */
export type ResultWarning = 'no_subject' | 'subject_unsure' | 'subject_cut_off' | (string & {});

/** The box of the subject, in pixels of the upright input. */
export interface Subject {
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
  /** Share of the input's area, 0 to 1. */
  readonly share: number;
}

export interface JobModel {
  readonly name: string;
  /** The model's role in its plan: subject, opinion, second_look, surer_look, refine. */
  readonly role: string;
}

export interface JobError {
  readonly code: string;
  readonly detail: string;
  readonly retryable: boolean;
}

export interface Callback {
  readonly url: string;
  readonly status: 'pending' | 'delivered' | 'failed';
  readonly attempts: number;
  readonly last_status_code: number | null;
  /**
   * forbidden, unresolved, timeout, connection_refused, tls, unreachable, redirect, gone, status or
   * unsignable.
   */
  readonly last_failure: string | null;
  readonly last_attempt_at: string | null;
  readonly next_attempt_at: string | null;
}

/** The items, and their common fields: all of a request except picture and files. */
export interface BatchRequest
  extends Omit<MattingFields, 'background_file' | 'hints_file' | 'keep' | 'erase' | 'reference'> {
  /** At most 128 characters. */
  readonly name?: string | undefined;
  /** 1 to 1,000. */
  readonly items: readonly {
    readonly image_url: string;
    readonly reference?: string | undefined;
  }[];
}

export interface Batch {
  readonly batch_id: string;
  readonly name?: string;
  readonly status: 'queued' | 'processing' | 'finished' | 'cancelled';
  readonly created_at: string;
  /** null: some items have not ended. */
  readonly finished_at: string | null;
  readonly counts: BatchCounts;
  readonly status_url: string;
}

/** `waiting` items have no job yet. */
export type BatchCounts = Readonly<Record<Job['status'] | 'waiting', number>>;

export type BatchResult = (Job | WaitingItem) & {
  readonly batch_id: string;
  readonly item: number;
};

interface WaitingItem {
  readonly status: 'waiting';
  readonly job_id: string;
  readonly reference?: string;
}

export interface BatchFilter {
  readonly status?: Batch['status'] | undefined;
}

/** Absent fields do not filter. */
export interface JobFilter {
  readonly status?: Job['status'] | undefined;
  readonly reference?: string | undefined;
}

export interface UsageFigures {
  /** Images whose jobs ended. */
  readonly images: number;
  /** Images among them that failed, free of charge. */
  readonly failed: number;
  /** Succeeded corrections, free of charge, not counted as images. */
  readonly corrected: number;
  /** Charged credits. */
  readonly credits: number;
}

/** One day, key, outcome or format, according to `Usage.group`. */
export interface UsageEntry extends UsageFigures {
  /** UTC, `2026-11-21`. */
  readonly day?: string;
  /** The key's public part. null: no longer known. */
  readonly key?: string | null;
  readonly name?: string | null;
  readonly outcome?: 'succeeded' | 'failed' | 'corrected';
  /** null: no longer known. */
  readonly format?: string | null;
}

export interface Usage {
  /** UTC dates, inclusive. */
  readonly from: string;
  readonly to: string;
  readonly group: UsageGroup;
  readonly total: UsageFigures;
  /** Entries in the order of days or names. Unused days and names are left out. */
  readonly usage: readonly UsageEntry[];
}

export type UsageGroup = 'day' | 'key' | 'outcome' | 'format';

/** A name for `model`. */
export interface Model {
  readonly name: string;
  /** plan: several models with roles. null: not reported yet. */
  readonly kind: 'plan' | 'model' | null;
  /** Used for requests that name no model. */
  readonly default: boolean;
  /** A node has the model in memory; otherwise the first picture waits. */
  readonly loaded: boolean;
  /** The operator's description. */
  readonly good_for: string | null;
  /** Median time of its last pictures, in seconds. null: too few pictures. */
  readonly seconds_p50: number | null;
  /** null: not reported yet. */
  readonly licence: ModelLicence | null;
}

/** The licence of a model, or the strictest terms of a plan's models. */
export interface ModelLicence {
  readonly weights: UseTerms;
  readonly training_data: UseTerms;
}

export interface UseTerms {
  readonly commercial_use: 'yes' | 'no' | 'unclear';
  readonly reason: string;
  readonly source: string;
}

export interface Account {
  readonly credits: {
    /** Credits that are not reserved. */
    readonly available: number;
    /** Credits reserved for jobs that are not final. */
    readonly reserved: number;
  };
}

/** RFC 9457. */
export interface Problem {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly detail: string;
  readonly instance?: string;
  readonly code: string;
  readonly request_id: string;
  readonly retryable: boolean;
  readonly job_id?: string;
  readonly errors?: readonly FieldError[];
}

export interface FieldError {
  readonly field: string;
  readonly detail: string;
}

/**
 * The types of the REST interface, with its names: docs/requests.md and docs/finishing.md explain
 * the fields. Fields of a later service pass through.
 */
import type { FinishingFields } from './finishing-fields.ts';

/** The bytes of a file. The client reads a stream to its end first, because a retry sends it again. */
export type ImageBytes =
  | Uint8Array
  | ArrayBuffer
  | Blob
  | ReadableStream<Uint8Array>
  | AsyncIterable<Uint8Array>;

/** The bytes of an image, or an http(s) address that the service downloads. For a path, use `readImage` of `matting-client/files`. */
export type ImageSource = ImageBytes | URL | string;

/** `jpeg` needs an opaque background. */
export type OutputFormat = 'png' | 'webp' | 'avif' | 'jxl' | 'jpeg';

/** A shape, in pixels of the upright image. A line of one point is a dot. */
export type HintShape =
  | { readonly box: readonly [left: number, top: number, right: number, bottom: number] }
  | { readonly line: readonly (readonly [x: number, y: number])[]; readonly radius: number };

/** The fields of a request for one picture. A field that is absent or undefined is not sent. */
export interface MattingFields extends FinishingFields {
  /** The format of the result. Default: `png`. */
  readonly output_format?: OutputFormat | undefined;
  /** A name that `listModels` returns. Default: the service's. */
  readonly model?: string | undefined;
  /** `fail`: if the service sees no subject, the job fails with NO_SUBJECT and costs nothing. */
  readonly no_subject?: 'fail' | undefined;
  /** The box in which the subject is: `x1 y1 x2 y2`, each in pixels of the upright image or in %. */
  readonly subject_box?: string | undefined;
  /** Shapes that belong to the subject. `keep` and `erase` have at most 64 shapes together. */
  readonly keep?: readonly HintShape[] | undefined;
  /** Shapes that do not belong to the subject. */
  readonly erase?: readonly HintShape[] | undefined;
  /** A PNG or WebP without alpha, in place of `keep` and `erase`: white keeps, black erases. */
  readonly hints_file?: ImageBytes | undefined;
  /** Your own name for the job, 1 to 128 characters. Several jobs can have the same name. */
  readonly reference?: string | undefined;
  /** Keeps the input and the matte as long as the result, for `correct`. */
  readonly correctable?: boolean | undefined;
  /** A picture behind the subject, as bytes. Send at most one of the three backgrounds. */
  readonly background_file?: ImageBytes | undefined;
  /** The address that the service calls when the job ends. Needs `callback_secret`. */
  readonly callback_url?: string | undefined;
  /** 24 to 128 printable ASCII characters, or `whsec_` and the Base64 of 24 to 64 bytes. */
  readonly callback_secret?: string | undefined;
}

/** The fields of a correction. Absent ones are the corrected job's, except a background picture. */
export type CorrectionFields = Omit<
  MattingFields,
  'model' | 'no_subject' | 'correctable' | 'subject_box'
>;

interface JobBase {
  readonly job_id: string;
  /** Absent: the request had none, or the job was deleted. */
  readonly reference?: string;
  /** The job that this one corrects. */
  readonly corrects?: string;
  /** For an item of a batch: the batch, and the item's position from 0. */
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
  /** When you deleted the result. Absent: its time was over. */
  readonly deleted_at?: string;
  readonly models?: readonly JobModel[];
}

export interface FailedJob extends JobBase {
  readonly status: 'failed';
  readonly error: JobError;
}

/** Distinguish the kinds by `status`. */
export type Job = QueuedJob | ProcessingJob | SucceededJob | ExpiredJob | FailedJob;

/** Credits that the job reserves, and its cost. */
export interface Credits {
  readonly reserved: number;
  readonly charged: number;
}

export interface Result {
  /** A download link. It needs no key, so treat it like the file. */
  readonly url: string;
  readonly format: OutputFormat;
  /** Media type. */
  readonly contentType: string;
  readonly sizeBytes: number;
  /** Pixels. */
  readonly width: number;
  readonly height: number;
  /** null: the service saw no subject, or does not know. */
  readonly subject: Subject | null;
  /** Facts to know before you use the result. Usually empty. */
  readonly warnings: readonly ResultWarning[];
  /** From this time on the link answers 410. */
  readonly expiresAt: string;
}

/**
 * `no_subject`: the service saw no subject, and the result is empty or nearly so. `subject_unsure`:
 * much of the subject is neither opaque nor transparent. `subject_cut_off`: the picture's edges cut
 * the subject off. A later service may add some.
 */
export type ResultWarning = 'no_subject' | 'subject_unsure' | 'subject_cut_off' | (string & {});

/** The subject of a picture: a box in pixels of the input, after its orientation was applied. */
export interface Subject {
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
  /** The share of the input's area that the subject covers, 0 to 1. */
  readonly share: number;
}

/** A model that made a result, and its role. */
export interface JobModel {
  readonly name: string;
  /** Role in the plan: subject, opinion, second_look, surer_look, refine. */
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
   * The reason of the last failed attempt: forbidden, unresolved, timeout, connection_refused, tls,
   * unreachable, redirect, gone, status, unsignable.
   */
  readonly last_failure: string | null;
  readonly last_attempt_at: string | null;
  readonly next_attempt_at: string | null;
}

/** The items, and the fields that they share: all of a request except the picture and files. */
export interface BatchRequest
  extends Omit<MattingFields, 'background_file' | 'hints_file' | 'keep' | 'erase' | 'reference'> {
  /** Your own name for the batch, of at most 128 characters. */
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
  /** null: an item has not ended. */
  readonly finished_at: string | null;
  readonly counts: BatchCounts;
  readonly status_url: string;
}

/** Number of items in each state. `waiting`: the item is not a job yet. */
export type BatchCounts = Readonly<Record<Job['status'] | 'waiting', number>>;

/** An item with the fields of its job. A waiting item is not a job yet. */
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

/** Filters a list of jobs. An absent field filters nothing. */
export interface JobFilter {
  readonly status?: Job['status'] | undefined;
  readonly reference?: string | undefined;
}

export interface UsageFigures {
  /** Images whose jobs ended. */
  readonly images: number;
  /** Images that failed. They cost nothing. */
  readonly failed: number;
  /** Corrections that succeeded. They do not count as images, and cost nothing. */
  readonly corrected: number;
  /** Charged. */
  readonly credits: number;
}

/** One day, key, outcome or format, as `Usage.group` says. */
export interface UsageEntry extends UsageFigures {
  /** UTC, `2026-11-21`. */
  readonly day?: string;
  /** The public part of the key; null: the key is no longer known. */
  readonly key?: string | null;
  readonly name?: string | null;
  readonly outcome?: 'succeeded' | 'failed' | 'corrected';
  /** null: the format is no longer known. */
  readonly format?: string | null;
}

export interface Usage {
  /** Dates in UTC, both included. */
  readonly from: string;
  readonly to: string;
  readonly group: UsageGroup;
  readonly total: UsageFigures;
  /** Entries in the order of days or names, without empty ones. */
  readonly usage: readonly UsageEntry[];
}

export type UsageGroup = 'day' | 'key' | 'outcome' | 'format';

/** A name that a request can have in `model`. */
export interface Model {
  readonly name: string;
  /** plan: several models with roles. null: no node has reported it yet. */
  readonly kind: 'plan' | 'model' | null;
  /** Used for requests that name no model. */
  readonly default: boolean;
  /** A node has loaded it. Otherwise the first picture waits for loading. */
  readonly loaded: boolean;
  /** The operator's description. null: there is none. */
  readonly good_for: string | null;
  /** The median of its last pictures; null: too few pictures. */
  readonly seconds_p50: number | null;
  /** null: no node has reported it yet. */
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
    /** The credits that the account can still reserve. */
    readonly available: number;
    /** Held by jobs that are not final. */
    readonly reserved: number;
  };
}

/** The body of an error, RFC 9457. */
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

/** A field of a request, and its fault. */
export interface FieldError {
  readonly field: string;
  readonly detail: string;
}

/**
 * The types of the REST interface, under its names: docs/rest.md says what each field means. Fields
 * that a later service adds pass through unnoticed.
 */

/** The file itself. A stream is read to its end before anything is sent: a retry sends it again. */
export type ImageBytes =
  | Uint8Array
  | ArrayBuffer
  | Blob
  | ReadableStream<Uint8Array>
  | AsyncIterable<Uint8Array>;

/** A file, or an http(s) address that the service fetches. A path is for `fromFile` of `files`. */
export type ImageSource = ImageBytes | URL | string;

/** jpeg only with a background that is opaque. */
export type OutputFormat = 'png' | 'webp' | 'avif' | 'jxl' | 'jpeg';

/** The fields of a request for one picture. An absent or undefined field asks for nothing. */
export interface MattingFields {
  /** png unless given. */
  readonly output_format?: OutputFormat | undefined;
  /** A name of GET /v1/models; what the service takes by default unless given. */
  readonly model?: string | undefined;
  /** `fail`: where no subject is seen the job fails with NO_SUBJECT and costs nothing. */
  readonly no_subject?: 'fail' | undefined;
  /** A CSS colour (hexadecimal or a name) or `transparent`. At most one of the backgrounds. */
  readonly background?: string | undefined;
  /** A picture that the service fetches; it covers the frame, centred. */
  readonly background_url?: string | undefined;
  readonly background_file?: ImageBytes | undefined;
  /** `alpha`: the matte alone, 8-bit grey. */
  readonly channels?: 'rgba' | 'alpha' | undefined;
  /** Crops the result to the subject. */
  readonly crop?: boolean | undefined;
  /** 1, 2 or 4 lengths as in CSS, in px or % of the subject. */
  readonly crop_margin?: string | undefined;
  /** How much of the frame the subject takes, `10%` to `100%`. */
  readonly scale?: string | undefined;
  readonly position?: string | undefined;
  readonly size_max_megapixels?: number | undefined;
  /** Pixels. */
  readonly output_width?: number | undefined;
  readonly output_height?: number | undefined;
  /** Only together with callback_secret. */
  readonly callback_url?: string | undefined;
  /** 24 to 128 printable ASCII characters; after `whsec_`, the Base64 of 24 to 64 bytes. */
  readonly callback_secret?: string | undefined;
}

interface JobBase {
  readonly job_id: string;
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
  readonly models?: readonly JobModel[];
}

export interface FailedJob extends JobBase {
  readonly status: 'failed';
  readonly error: JobError;
}

/** Told apart by `status`. */
export type Job = QueuedJob | ProcessingJob | SucceededJob | ExpiredJob | FailedJob;

/** The credits that the job reserves of the account, and its cost. */
export interface Credits {
  readonly reserved: number;
  readonly charged: number;
}

export interface Result {
  /** A download link; needs no key, so treat it like the file. */
  readonly url: string;
  readonly format: OutputFormat;
  /** Media type. */
  readonly contentType: string;
  readonly sizeBytes: number;
  /** Pixels. */
  readonly width: number;
  readonly height: number;
  /** null: none was seen, or the service does not know. */
  readonly subject: Subject | null;
  /** What you should know before you use the result. It is mostly empty. */
  readonly warnings: readonly ResultWarning[];
  /** The link answers 410 from this time on. */
  readonly expiresAt: string;
}

/**
 * `no_subject`: none was seen, the result is empty or nearly so. `subject_unsure`: much of it is
 * neither opaque nor transparent. `subject_cut_off`: the edges of the picture cut it off. A later
 * service may add some.
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

/** A model that made a result, and what for. */
export interface JobModel {
  readonly name: string;
  /** Its role in the plan: subject, opinion, second_look, refine. */
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
   * Why the last attempt did not deliver: forbidden, unresolved, timeout, connection_refused, tls,
   * unreachable, redirect, gone, status, unsignable.
   */
  readonly last_failure: string | null;
  readonly last_attempt_at: string | null;
  readonly next_attempt_at: string | null;
}

export interface UsageFigures {
  /** Images whose jobs ended. */
  readonly images: number;
  /** The failed ones among them, which cost nothing. */
  readonly failed: number;
  /** Charged. */
  readonly credits: number;
}

/** One day, key, outcome or format, as `Usage.group` says. */
export interface UsageEntry extends UsageFigures {
  /** UTC, `2026-11-21`. */
  readonly day?: string;
  /** The part of the key that is no secret; null: not known any more. */
  readonly key?: string | null;
  readonly name?: string | null;
  readonly outcome?: 'succeeded' | 'failed';
  /** null: not known any more. */
  readonly format?: string | null;
}

export interface Usage {
  /** Dates in UTC, both included. */
  readonly from: string;
  readonly to: string;
  readonly group: UsageGroup;
  readonly total: UsageFigures;
  /** Entries in the order of days or names, without those that were not used. */
  readonly usage: readonly UsageEntry[];
}

export type UsageGroup = 'day' | 'key' | 'outcome' | 'format';

/** A name that a request can have in `model`. */
export interface Model {
  readonly name: string;
  /** plan: models and what each of them is for. null: no node has told of it yet. */
  readonly kind: 'plan' | 'model' | null;
  /** It makes what a request gets that names none. */
  readonly default: boolean;
  /** Some node has it in memory; otherwise a first picture waits for that. */
  readonly loaded: boolean;
  /** The operator's description. null: there is none. */
  readonly good_for: string | null;
  /** Half of its last pictures took no longer; null: too few to say. */
  readonly seconds_p50: number | null;
  /** null: no node has told of it yet. */
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

/** One of a request's fields and what is wrong with it. */
export interface FieldError {
  readonly field: string;
  readonly detail: string;
}

/**
 * Notifications that wait for their delivery: a row is written with its job's final state
 * (job-completion) and removed with its job's row (job-retention). Events of accounts have rows of
 * the same kind (account-events.ts), with an id of their own in the place of a job's.
 *
 * | status    | entered by                        | left by                                       |
 * |-----------|-----------------------------------|-----------------------------------------------|
 * | pending   | the job's end, retry              | an attempt that succeeded (to delivered), the |
 * |           |                                   | last one or a 410, or the erasure of its      |
 * |           |                                   | secret (to failed)                            |
 * | delivered | a 2xx; its secret goes with it    | -                                             |
 * | failed    | 410, its secret goes with it; the | retry, while its secret is there              |
 * |           | last attempt; an erased secret    |                                               |
 *
 * The body goes with the secret: what is left says when, how often and how it was attempted.
 *
 * An attempt is made under a lease: holder, expiry, fence. The fence rises with every claim, and
 * the holder of an old one writes nothing. An attempt counts when its end is written: one that died
 * with its process is made again.
 *
 * The other files of this folder implement the store, each the part whose statements it has;
 * stores.ts joins the parts.
 */
import type { CallbackStatus } from '../../domain/job.ts';
import type { FullPlaces } from '../../domain/shared-places.ts';
import type { AuditEntry } from '../people/audit.ts';
import type { LoggedAttempt } from './attempt-log.ts';

/** A notification whose time has come. */
export interface DueNotification {
  readonly jobId: string;
  readonly accountId: string;
  readonly callbackUrl: string;
  /** `<host>:<port>`. */
  readonly receiver: string;
  /** Sealed. */
  readonly body: string;
  /** Sealed; never null while pending. */
  readonly secret: Uint8Array;
  readonly secretKeyId: string;
  /** Attempts whose ends were written. */
  readonly attempts: number;
  readonly fence: number;
  /** When its job ended. */
  readonly createdAtMs: number;
  /** The database's clock, when it was listed. */
  readonly readAtMs: number;
  /** As its job has it; null: none. */
  readonly traceContext: string | null;
}

export interface DueQuery {
  readonly limit: number;
  /** Keys that this replica can open secrets with; other notifications are left to other replicas. */
  readonly secretKeyIds: readonly string[];
  /** Receivers are the destinations. What has no place is left out. */
  readonly full: FullPlaces;
}

export interface NotificationClaim {
  readonly jobId: string;
  readonly holder: string;
  readonly fence: number;
}

export interface AttemptEnd {
  /** null: there was no answer. */
  readonly statusCode: number | null;
  /** From its beginning until now. */
  readonly durationMs: number;
}

/** A notification as the operator may see it: the receiver instead of the URL. */
export interface NotificationSummary {
  readonly jobId: string;
  /** The type of an account's event, whose own id `jobId` is; null: the end of that job. */
  readonly event: string | null;
  readonly accountId: string;
  readonly receiver: string;
  readonly status: CallbackStatus;
  readonly attempts: number;
  readonly lastStatusCode: number | null;
  readonly lastAttemptAtMs: number | null;
  /** Duration of the last attempt. */
  readonly lastDurationMs: number | null;
  /** What is known of each attempt, in their order; the first ones where there are many. */
  readonly log: readonly LoggedAttempt[];
  readonly nextAttemptAtMs: number | null;
  readonly createdAtMs: number;
  readonly finishedAtMs: number | null;
  /** Until then it can be sent again; null: nothing could sign it any more. */
  readonly secretEraseAtMs: number | null;
}

export interface NotificationFilter {
  readonly jobId?: string | undefined;
  readonly status?: CallbackStatus | undefined;
  readonly limit: number;
  /** Behind which notification the page begins. */
  readonly after?: { readonly createdAtMs: number; readonly jobId: string } | undefined;
}

/** retried: its next attempt is due now. */
export type RetryOutcome = 'retried' | 'absent' | 'delivered' | 'secret-erased';

/** `giveUp`: as in JobStore. */
export interface WebhookOutboxStore {
  /**
   * Leaves out those that another holder is sending. In the order of their times, where what waits
   * before them is little; otherwise some of each lane in turn (webhook-due.ts).
   */
  listDue(due: DueQuery): Promise<DueNotification[]>;
  /** False: somebody else has it, or its time is not now. */
  claim(claim: NotificationClaim, leaseMs: number): Promise<boolean>;
  /** Gives it back: its time is still now. */
  release(claim: NotificationClaim, giveUp?: AbortSignal): Promise<boolean>;
  /** Each of these is false where the claim was lost, and changes nothing then. */
  delivered(claim: NotificationClaim, end: AttemptEnd, giveUp?: AbortSignal): Promise<boolean>;
  retryLater(
    claim: NotificationClaim,
    end: AttemptEnd,
    waitMs: number,
    giveUp?: AbortSignal,
  ): Promise<boolean>;
  failed(
    claim: NotificationClaim,
    end: AttemptEnd,
    options: { readonly eraseSecret: boolean },
    giveUp?: AbortSignal,
  ): Promise<boolean>;
  /**
   * Notifications whose time has come, DUE_COUNTED_MAX at most, and since when; by the database's
   * clock.
   */
  due(): Promise<{ readonly count: number; readonly oldestMs: number }>;
  /**
   * Notifications that wait and that none of these keys opens: DUE_COUNTED_MAX at most, and of the
   * first some thousand lanes (webhook-due.ts).
   */
  countSealedWithOthers(secretKeyIds: readonly string[]): Promise<number>;
  /** Newest first. */
  list(filter: NotificationFilter): Promise<NotificationSummary[]>;
  retry(jobId: string): Promise<RetryOutcome>;
  /**
   * The same by a person. too-soon: the last attempt began within `everyMs`, or is under way.
   * @param audit entered where it is retried, with it
   */
  resend(jobId: string, audit: AuditEntry, everyMs: number): Promise<RetryOutcome | 'too-soon'>;
  /**
   * For the sweeper: forgets secrets whose time has come. A notification that still waited for its
   * delivery has failed with that, since nothing could sign it any more. The number of secrets.
   */
  eraseDueSecrets(limit: number): Promise<number>;
  /** For the sweeper: ended events of accounts (account-events.ts) so old; their number. */
  removeOldEvents(afterMs: number, limit: number): Promise<number>;
}

/**
 * Sends the mails of mail_outbox: each is claimed under a lease, handed to the mail server, and its
 * attempt's end written. So it is sent at least once whatever dies, and twice only where a process
 * died between the server's answer and the row. A mail that fails waits by the schedule, behind
 * those that are due: one address that the server does not take hides nobody else's.
 */
import type { Logger } from 'pino';
import { nextWaitMs, type WebhookSchedule } from '../../domain/webhook-schedule.ts';
import type { DueMail, MailClaim, MailOutboxStore } from '../../store/alerts/mail-outbox.ts';
import { RoundLoop } from '../round-loop.ts';
import type { MailObserver, MailOutcome, MailSender } from './mail-sender.ts';

/** Conversations with the mail server at once, each replica. */
export const MAILS_UNDER_WAY_MAX = 4;
/** Waits before each attempt; after the last one it is given up: in about a day. */
export const MAIL_SCHEDULE_MS: WebhookSchedule = [
  0, 60_000, 300_000, 1_800_000, 7_200_000, 21_600_000, 43_200_000,
];
const POLL_MS = 2000;
/** An attempt that takes longer is ended, and counts as failed. */
const ATTEMPT_MS_MAX = 60_000;
/** Twice that: time to write its end. */
const LEASE_MS = 120_000;

export interface MailDeliveryDependencies {
  readonly outbox: Pick<
    MailOutboxStore,
    'listDue' | 'claim' | 'release' | 'sent' | 'retryLater' | 'failed'
  >;
  readonly sender: MailSender;
  readonly observer: MailObserver;
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>;
  /** This replica, as the holder of its leases. */
  readonly holder: string;
  readonly scheduleMs?: WebhookSchedule;
  /** In [0, 1). */
  readonly random?: () => number;
}

export class MailDelivery {
  readonly #dependencies: MailDeliveryDependencies;
  readonly #running = new Set<Promise<void>>();
  readonly #cutOff = new AbortController();
  readonly #loop = new RoundLoop({ pollMs: POLL_MS, begin: () => void this.#round() });

  constructor(dependencies: MailDeliveryDependencies) {
    this.#dependencies = dependencies;
  }

  start(): void {
    this.#loop.start();
  }

  /** Begins nothing more and ends what is under way, whose time is now for the next replica. */
  async stop(): Promise<void> {
    await this.#loop.stop();
    this.#cutOff.abort();
    await Promise.all(this.#running);
  }

  /** Never rejects. */
  async #round(): Promise<void> {
    const { outbox, holder, log } = this.#dependencies;
    try {
      const free = MAILS_UNDER_WAY_MAX - this.#running.size;
      const due = free > 0 ? await outbox.listDue(free) : [];
      for (const mail of due) {
        const claim: MailClaim = { id: mail.id, holder, fence: mail.fence + 1 };
        if (this.#loop.stopping) break;
        if (await outbox.claim(claim, LEASE_MS)) this.#begin(mail, claim);
      }
      this.#loop.roundEnded();
    } catch (err) {
      log.warn({ err }, 'the mail outbox is not readable');
      this.#loop.roundFailed();
    }
  }

  #begin(mail: DueMail, claim: MailClaim): void {
    const run = this.#deliver(mail, claim).finally(() => {
      this.#running.delete(run);
      if (!this.#loop.stopping) this.#loop.wake();
    });
    this.#running.add(run);
  }

  /** Never rejects. */
  async #deliver(mail: DueMail, claim: MailClaim): Promise<void> {
    const { log, sender } = this.#dependencies;
    const signal = AbortSignal.any([this.#cutOff.signal, AbortSignal.timeout(ATTEMPT_MS_MAX)]);
    try {
      const { id, recipient: to, subject, body: text } = mail;
      const outcome = await sender.send({ id, to, subject, text }, signal);
      await this.#writeEnd(mail, claim, outcome);
    } catch (err) {
      log.error({ err, mailId: mail.id }, 'a mail is left to its lease');
      this.#loop.fault();
    }
  }

  async #writeEnd(mail: DueMail, claim: MailClaim, outcome: MailOutcome): Promise<void> {
    const { outbox, observer, log, random = Math.random } = this.#dependencies;
    const { scheduleMs = MAIL_SCHEDULE_MS } = this.#dependencies;
    const giveUp = this.#cutOff.signal;
    const attempt = mail.attempts + 1;
    // Nothing of the recipient: an address is a person's.
    const line = { mailId: mail.id, accountId: mail.accountId, attempt, ...outcome };
    if (outcome.kind === 'sent') {
      observer.mailAttempted('sent');
      if (await outbox.sent(claim, giveUp)) log.info(line, 'mail');
      return;
    }
    // Ended by us, not by the server.
    if (giveUp.aborted) return void (await outbox.release(claim, giveUp));
    const again = outcome.kind === 'later';
    const waitMs = again ? nextWaitMs(scheduleMs, attempt, 0, random()) : undefined;
    if (waitMs === undefined) {
      observer.mailAttempted(again ? 'given-up' : 'refused');
      if (await outbox.failed(claim, outcome.error, giveUp)) log.warn(line, 'a mail is given up');
      return;
    }
    observer.mailAttempted('later');
    await outbox.retryLater(claim, outcome.error, waitMs, giveUp);
    log.warn({ ...line, waitMs }, 'a mail was not taken');
  }
}

/**
 * Sends the mails of mail_outbox: each is claimed under a lease, handed to the mail server, and its
 * attempt's end written. So it is sent at least once whatever dies, and twice only where a process
 * died between the server's answer and the row. A mail that fails waits by the schedule, behind
 * those that are due: one address that the server does not take hides nobody else's. Accounts take
 * turns (store/alerts/mail-turns.ts), and share the conversations with the server.
 */
import type { Logger } from 'pino';
import { type PlaceUse, SharedPlaces } from '../../domain/shared-places.ts';
import { nextWaitMs, type WebhookSchedule } from '../../domain/webhook-schedule.ts';
import { type CallbackSecrets, mailBody } from '../../secrets/callback-secret.ts';
import type { DueMail, MailClaim, MailOutboxStore } from '../../store/alerts/mail-outbox.ts';
import { RoundLoop } from '../round-loop.ts';
import type { MailObserver, MailOutcome, MailSender } from './mail-sender.ts';

/** Conversations with the mail server at once, each replica; an account alone has half of them. */
export const MAILS_UNDER_WAY_MAX = 8;
/** Waits before each attempt; after the last one it is given up: in about a day. */
export const MAIL_SCHEDULE_MS: WebhookSchedule = [
  0, 60_000, 300_000, 1_800_000, 7_200_000, 21_600_000, 43_200_000,
];
const POLL_MS = 2000;
/** An attempt that takes longer is ended, and counts as failed. */
const ATTEMPT_MS_MAX = 60_000;
/** Twice that: time to write its end. */
const LEASE_MS = 120_000;
/** The error of a mail that no key here opens: another replica may have it. */
const NO_KEY = 'ENOKEY';

export interface MailDeliveryDependencies {
  readonly outbox: Pick<
    MailOutboxStore,
    'listDue' | 'claim' | 'release' | 'sent' | 'retryLater' | 'failed'
  >;
  readonly secrets: Pick<CallbackSecrets, 'openText'>;
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
  readonly #places = new SharedPlaces({
    max: MAILS_UNDER_WAY_MAX,
    destinationMax: MAILS_UNDER_WAY_MAX,
    slowMax: MAILS_UNDER_WAY_MAX,
    slowDestinationsMax: 1,
  });
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
    try {
      while (!this.#loop.stopping && (await this.#beginSome()));
      this.#loop.roundEnded();
    } catch (err) {
      this.#dependencies.log.warn({ err }, 'the mail outbox is not readable');
      this.#loop.roundFailed();
    }
  }

  /** One mail an account. True: there may be more that can be begun. */
  async #beginSome(): Promise<boolean> {
    const { free } = this.#places;
    if (free === 0) return false;
    const { outbox } = this.#dependencies;
    let begun = false;
    for (const mail of await outbox.listDue(free, this.#places.full().accounts)) {
      if (this.#loop.stopping) return false;
      if (this.#places.take(useOf(mail)) && (await this.#claim(mail))) begun = true;
    }
    return begun;
  }

  /** Begins the attempt if the claim is won; the place is given back otherwise. */
  async #claim(mail: DueMail): Promise<boolean> {
    const { outbox, holder } = this.#dependencies;
    const claim: MailClaim = { id: mail.id, holder, fence: mail.fence + 1 };
    let won = false;
    try {
      won = await outbox.claim(claim, LEASE_MS);
    } finally {
      if (!won) this.#places.end(useOf(mail), undefined);
    }
    if (won) this.#begin(mail, claim);
    return won;
  }

  #begin(mail: DueMail, claim: MailClaim): void {
    const run = this.#deliver(mail, claim).finally(() => {
      this.#running.delete(run);
      this.#places.end(useOf(mail), undefined);
      if (!this.#loop.stopping) this.#loop.wake();
    });
    this.#running.add(run);
  }

  /** Never rejects. */
  async #deliver(mail: DueMail, claim: MailClaim): Promise<void> {
    const { log } = this.#dependencies;
    try {
      await this.#writeEnd(mail, claim, await this.#send(mail));
    } catch (err) {
      log.error({ err, mailId: mail.id }, 'a mail is left to its lease');
      this.#loop.fault();
    }
  }

  #send({ id, recipient: to, subject, body }: DueMail): MailOutcome | Promise<MailOutcome> {
    const { sender, secrets } = this.#dependencies;
    const text = secrets.openText(body, mailBody(id));
    if (text === undefined) return { kind: 'later', error: NO_KEY };
    const signal = AbortSignal.any([this.#cutOff.signal, AbortSignal.timeout(ATTEMPT_MS_MAX)]);
    return sender.send({ id, to, subject, text }, signal);
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

/** There is one server. */
function useOf({ accountId }: DueMail): PlaceUse {
  return { accountId, destination: '' };
}

/**
 * Sends each mail by SMTP and stores the attempt's end. A mail that fails waits by the schedule
 * after those that are due, so an address that the server refuses delays no other. Accounts share
 * the connections.
 */

import { type CallbackSecrets, mailBody } from '@matting/core/secrets/secret-box.ts';
import {
  type AttemptResult,
  type ClaimedMessage,
  type DeliveryParts,
  MessageDelivery,
} from '@matting/core/webhooks/deliver-messages.ts';
import type { DueMessage } from '@matting/core/webhooks/due-messages.ts';
import { nextWaitMs, type WebhookSchedule } from '@matting/core/webhooks/webhook-schedule.ts';
import { isLoopback } from '@matting/program/ports/addresses.ts';
import { createTransport } from 'nodemailer';
import type SMTPTransport from 'nodemailer/lib/smtp-transport/index.js';

/** Connections of a replica to the mail server. One account has at most half of them. */
const MAILS_UNDER_WAY_MAX = 8;
const SLOTS = {
  max: MAILS_UNDER_WAY_MAX,
  destinationMax: MAILS_UNDER_WAY_MAX,
  slowMax: MAILS_UNDER_WAY_MAX,
  slowDestinationsMax: 1,
};
/** Waits before each attempt. The last one is after about a day. */
const SCHEDULE_MS: WebhookSchedule = [
  0, 60_000, 300_000, 1_800_000, 7_200_000, 21_600_000, 43_200_000,
];
const POLL_MS = 2000;
const ATTEMPT_MS_MAX = 60_000;
/** No key of this replica decrypts the mail. Another replica may have the key. */
const NO_KEY = 'ENOKEY';

interface OutgoingMail {
  /** A UUID that all attempts share, for the Message-ID. */
  readonly id: string;
  readonly to: string;
  readonly subject: string;
  readonly text: string;
}

/** sent: the server accepted it. refused: for good. later: try again. */
type MailOutcome =
  | { readonly kind: 'sent' }
  | { readonly kind: 'refused' | 'later'; readonly error: string };

interface MailSender {
  /** Rejects only for a bug. @param signal stops the attempt */
  send(mail: OutgoingMail, signal: AbortSignal): Promise<MailOutcome>;
}

export const MAIL_ATTEMPT_OUTCOMES = ['sent', 'refused', 'later', 'given-up'] as const;
type MailAttemptOutcome = (typeof MAIL_ATTEMPT_OUTCOMES)[number];

interface MailDeliveryParts extends DeliveryParts {
  readonly secrets: Pick<CallbackSecrets, 'openText'>;
  readonly sender: MailSender;
  readonly observer: { mailAttempted(outcome: MailAttemptOutcome): void };
  readonly scheduleMs?: WebhookSchedule;
}

export function mailDelivery(parts: MailDeliveryParts): MessageDelivery {
  const { log } = parts;
  return new MessageDelivery(parts, {
    kind: 'mail',
    pollMs: parts.pollMs ?? POLL_MS,
    leaseMs: 2 * ATTEMPT_MS_MAX,
    slots: SLOTS,
    secretKeyIds: [],
    attempt: (claimed, cutOff) => attemptMail(parts, claimed, cutOff),
    unreadable: err => log.warn({ err }, 'the mail outbox is not readable'),
    attemptLost: (err, mailId) => log.error({ err, mailId }, 'a mail is left to its lease'),
  });
}

async function attemptMail(
  parts: MailDeliveryParts,
  { message, claim }: ClaimedMessage,
  cutOff: AbortSignal,
): Promise<AttemptResult> {
  const { outbox, observer, log, random = Math.random, scheduleMs = SCHEDULE_MS } = parts;
  const beganMs = performance.now();
  const outcome = await send(parts, message, cutOff);
  const error = outcome.kind === 'sent' ? {} : { error: outcome.error };
  const end = { statusCode: null, ...error, durationMs: performance.now() - beganMs };
  const attempt = message.attempts + 1;
  // Without the recipient, since an address is personal.
  const line = { mailId: message.id, accountId: message.accountId, attempt, ...outcome };
  const over = { slow: undefined, nextInMs: undefined };
  if (outcome.kind === 'sent') {
    observer.mailAttempted('sent');
    if (await outbox.delivered(claim, end, cutOff)) log.info(line, 'mail');
    return over;
  }
  if (cutOff.aborted) {
    await outbox.release(claim, cutOff);
    return over;
  }
  const again = outcome.kind === 'later';
  const waitMs = again ? nextWaitMs(scheduleMs, attempt, 0, random()) : undefined;
  if (waitMs === undefined) {
    observer.mailAttempted(again ? 'given-up' : 'refused');
    const held = await outbox.failed(claim, end, { eraseSecret: true }, cutOff);
    if (held) log.warn(line, 'a mail is given up');
    return over;
  }
  observer.mailAttempted('later');
  await outbox.retryLater(claim, end, waitMs, cutOff);
  log.warn({ ...line, waitMs }, 'a mail was not taken');
  return { slow: undefined, nextInMs: waitMs };
}

async function send(
  { sender, secrets }: MailDeliveryParts,
  { id, address: to, subject, body }: DueMessage,
  cutOff: AbortSignal,
): Promise<MailOutcome> {
  const text = secrets.openText(body, mailBody(id));
  if (text === undefined) return { kind: 'later', error: NO_KEY };
  const signal = AbortSignal.any([cutOff, AbortSignal.timeout(ATTEMPT_MS_MAX)]);
  return await sender.send({ id, to, subject: subject ?? '', text }, signal);
}

const CONNECT_MS = 10_000;
const GREETING_MS = 10_000;
/** Longest silence of the server between two answers. */
const SILENCE_MS = 20_000;
const ERROR_LENGTH_MAX = 64;

/**
 * `smtps` uses TLS from the start, `smtp` by STARTTLS, which only a server on this machine may
 * lack. Each mail has its own connection, so that one that hangs delays no other.
 */
export class SmtpSender implements MailSender {
  readonly #server: SMTPTransport.Options;
  readonly #from: string;
  readonly #name: string | undefined;

  /** @param server.name the service's, which signs its mails */
  constructor(server: {
    readonly smtpUrl: string;
    readonly from: string;
    readonly name?: string | undefined;
  }) {
    this.#server = serverOf(new URL(server.smtpUrl));
    this.#from = server.from;
    this.#name = server.name;
  }

  async send(mail: OutgoingMail, signal: AbortSignal): Promise<MailOutcome> {
    if (signal.aborted) return { kind: 'later', error: 'ended' };
    const transport = createTransport(this.#server);
    const ended = new Promise<MailOutcome>(resolve => {
      const end = () => {
        transport.close();
        resolve({ kind: 'later', error: 'ended' });
      };
      signal.addEventListener('abort', end, { once: true });
    });
    const sent = transport
      .sendMail({
        from: { name: this.#name ?? '', address: this.#from },
        // An object is one address. A text with a comma would be several.
        to: { name: '', address: mail.to },
        subject: mail.subject,
        text: this.#name === undefined ? mail.text : `${mail.text}\n-- \n${this.#name}\n`,
        messageId: `<${mail.id}@${this.#from.split('@')[1] ?? 'localhost'}>`,
        // Prevents automatic replies.
        headers: { 'Auto-Submitted': 'auto-generated' },
        disableFileAccess: true,
        disableUrlAccess: true,
      })
      .then((): MailOutcome => ({ kind: 'sent' }), mailOutcomeOf)
      .finally(() => transport.close());
    return Promise.race([sent, ended]);
  }
}

function serverOf(url: URL): SMTPTransport.Options {
  const secure = url.protocol === 'smtps:';
  const host = url.hostname.replace(/^\[|\]$/g, '');
  const user = decodeURIComponent(url.username);
  return {
    host,
    port: Number(url.port || (secure ? 465 : 587)),
    secure,
    requireTLS: !secure && !isLoopback(host),
    connectionTimeout: CONNECT_MS,
    greetingTimeout: GREETING_MS,
    socketTimeout: SILENCE_MS,
    ...(user === '' ? {} : { auth: { user, pass: decodeURIComponent(url.password) } }),
  };
}

/** Codes of nodemailer about this mail. Others are about the server or the connection. */
const OF_THE_MAIL = new Set(['EENVELOPE', 'EMESSAGE']);

/** 5xx is about the mail itself (RFC 5321 section 4.2.1). */
function mailOutcomeOf(error: unknown): MailOutcome {
  const { code = 'unknown', responseCode } = error as { code?: string; responseCode?: number };
  const text = responseCode === undefined ? code : `${code}-${responseCode}`;
  const isForGood = OF_THE_MAIL.has(code) && responseCode !== undefined && responseCode >= 500;
  return { kind: isForGood ? 'refused' : 'later', error: text.slice(0, ERROR_LENGTH_MAX) };
}

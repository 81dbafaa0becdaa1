/** The way to the mail server, as the delivery of mails needs it. */

export interface OutgoingMail {
  /** A UUID; the same on every attempt: the Message-ID has it. */
  readonly id: string;
  readonly to: string;
  readonly subject: string;
  /** Plain text. */
  readonly text: string;
}

/** sent: the server took it. refused: it never will. later: it may. */
export type MailOutcome =
  | { readonly kind: 'sent' }
  | { readonly kind: 'refused' | 'later'; readonly error: string };

export interface MailSender {
  /** Rejects only for a bug. @param signal ends the attempt */
  send(mail: OutgoingMail, signal: AbortSignal): Promise<MailOutcome>;
}

/** given-up: not taken, and that was the last attempt. */
export const MAIL_ATTEMPT_OUTCOMES = ['sent', 'refused', 'later', 'given-up'] as const;
export type MailAttemptOutcome = (typeof MAIL_ATTEMPT_OUTCOMES)[number];

/** Events of the delivery of mails; the metrics implement it. */
export interface MailObserver {
  mailAttempted(outcome: MailAttemptOutcome): void;
}

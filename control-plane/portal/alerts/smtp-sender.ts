/**
 * The way to a mail server, over TLS: `smtps` from the first byte, `smtp` by STARTTLS, without
 * which nothing is sent, unless the server is on this machine. Each mail has a connection of its
 * own: they are few, and one that hangs holds up no other.
 */
import { createTransport } from 'nodemailer';
import type SMTPTransport from 'nodemailer/lib/smtp-transport/index.js';
import { isLoopback } from '#program/ports/addresses.ts';
import type { MailOutcome, MailSender, OutgoingMail } from './send-mails.ts';

const CONNECT_MS = 10_000;
const GREETING_MS = 10_000;
/** Between two answers of the server. */
const SILENCE_MS = 20_000;
const ERROR_LENGTH_MAX = 64;

export class SmtpSender implements MailSender {
  readonly #server: SMTPTransport.Options;
  readonly #from: string;

  constructor({ smtpUrl, from }: { readonly smtpUrl: string; readonly from: string }) {
    this.#server = serverOf(new URL(smtpUrl));
    this.#from = from;
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
        from: this.#from,
        // An address and nothing else: text with a comma in it would be several.
        to: { name: '', address: mail.to },
        subject: mail.subject,
        text: mail.text,
        messageId: `<${mail.id}@${this.#from.split('@')[1] ?? 'localhost'}>`,
        // Receivers that answer by themselves do not answer this.
        headers: { 'Auto-Submitted': 'auto-generated' },
        disableFileAccess: true,
        disableUrlAccess: true,
      })
      .then((): MailOutcome => ({ kind: 'sent' }), outcomeOf)
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

/** Codes of nodemailer that tell of this mail; others tell of the server or the way to it. */
const OF_THE_MAIL = new Set(['EENVELOPE', 'EMESSAGE']);

/** A refusal for good is one of the mail itself: RFC 5321 section 4.2.1, 5xx. */
function outcomeOf(error: unknown): MailOutcome {
  const { code = 'unknown', responseCode } = error as { code?: string; responseCode?: number };
  const text = responseCode === undefined ? code : `${code}-${responseCode}`;
  const isForGood = OF_THE_MAIL.has(code) && responseCode !== undefined && responseCode >= 500;
  return { kind: isForGood ? 'refused' : 'later', error: text.slice(0, ERROR_LENGTH_MAX) };
}

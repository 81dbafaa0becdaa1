import { randomUUID } from 'node:crypto';
import { type CallbackSecrets, mailBody } from '@matting/core/secrets/secret-box.ts';
import type { NewMail } from '@matting/core/webhooks/outbox-store.ts';
import type { Logger } from 'pino';
import { addressOf } from './mail-address.ts';
import type { Withheld, WithheldReason } from './messages.ts';

export interface MailText {
  readonly subject: string;
  readonly text: string;
}

/** Code points of a name in a subject. */
const NAME_LENGTH_MAX = 60;

export function nameInMail(name: string): string {
  return [...name.replaceAll(/\p{Cc}/gu, ' ')].slice(0, NAME_LENGTH_MAX).join('');
}

export function ownersMails(
  owners: readonly { readonly mail: string; readonly language: string | null }[],
  of: {
    readonly accountId: string;
    readonly secrets: Pick<CallbackSecrets, 'sealText'>;
    readonly textOf: (language: string | null) => MailText;
  },
): NewMail[] {
  return owners.flatMap(({ mail, language }) => {
    const recipient = addressOf(mail);
    // The identity provider gave no mail of this person.
    if (recipient === undefined) return [];
    const { subject, text } = of.textOf(language);
    const id = randomUUID();
    const body = of.secrets.sealText(text, mailBody(id));
    return { id, accountId: of.accountId, recipient, subject, body };
  });
}

export type OnWithheld = (accountId: string, withheld: Withheld) => void;

/** Counts each message. Logs one line a day for an account, and for an unnamed address. */
export function withheldReporter(
  observer: { messageWithheld(reason: WithheldReason): void },
  log: Pick<Logger, 'warn'>,
): OnWithheld {
  return (accountId, { reason, isFirst }) => {
    observer.messageWithheld(reason);
    if (isFirst) log.warn({ accountId, reason }, 'messages are withheld until tomorrow');
  };
}

/** The mail server that invitations and warnings go through, and how many an account sends. */
import type { EnvReader } from '#program/env.ts';
import { parseMail } from '../domain/account/mail-address.ts';
import { ACCOUNT_MAILS_DEFAULT, ACCOUNT_MAILS_MAX } from '../domain/account/message-limits.ts';

export interface MailConfig {
  /** `smtps://user:password@host:465`, `smtp://…`; holds a password, so it is never logged. */
  readonly smtpUrl: string;
  /** What mails come from. */
  readonly from: string;
}

export interface MailSettings {
  /** Undefined: no mail is sent. */
  readonly mail: MailConfig | undefined;
  /** Of an account a day, and events to its own address: domain/account/message-limits.ts. */
  readonly accountMails: number;
}

export function readMail(reader: EnvReader): MailSettings {
  const accountMails = reader.integer('MATTING_ACCOUNT_MAILS', {
    min: 1,
    max: ACCOUNT_MAILS_MAX,
    default: ACCOUNT_MAILS_DEFAULT,
  });
  return { mail: readServer(reader), accountMails };
}

function readServer(reader: EnvReader): MailConfig | undefined {
  const smtpUrl = reader.url('MATTING_SMTP_URL', {
    schemes: ['smtp', 'smtps'],
    default: undefined,
  });
  const from = reader.parsed(
    'MATTING_MAIL_FROM',
    'a mail address, such as matting@shop.example',
    parseMail,
    { default: undefined },
  );
  if (smtpUrl === undefined) return undefined;
  if (from === undefined) {
    reader.problem('MATTING_MAIL_FROM', 'set where MATTING_SMTP_URL is');
    return undefined;
  }
  return { smtpUrl, from };
}

/** The mail server that invitations and warnings go through. */
import type { EnvReader } from '#program/env.ts';
import { parseMail } from '../domain/account/mail-address.ts';

export interface MailConfig {
  /** `smtps://user:password@host:465`, `smtp://…`; holds a password, so it is never logged. */
  readonly smtpUrl: string;
  /** What mails come from. */
  readonly from: string;
}

/** Undefined: no mail is sent. */
export function readMail(reader: EnvReader): MailConfig | undefined {
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

/** The settings of the mail server, and of how many mails an account sends. */

import type { EnvReader } from '@matting/program/env.ts';
import { parseMail } from './mail-address.ts';
import { ACCOUNT_MAILS_DEFAULT, ACCOUNT_MAILS_MAX } from './messages.ts';

export function readMail(whole: EnvReader) {
  const reader = whole.section('Mail');
  // The quota holds for an account and a day, and for events to its own address (messages.ts).
  const accountMails = reader.integer('MATTING_ACCOUNT_MAILS', {
    about: `The mails that an account may send each UTC day. Events to its own address have a second
      limit of the same size.`,
    min: 1,
    max: ACCOUNT_MAILS_MAX,
    default: ACCOUNT_MAILS_DEFAULT,
  });
  return { mail: readServer(reader), accountMails };
}

/** If undefined, no mail is sent. The URL holds a password, so it is never logged. */
function readServer(reader: EnvReader) {
  const smtpUrl = reader.url('MATTING_SMTP_URL', {
    about: `The mail server, such as \`smtps://user:password@mail.shop.example:465\`. \`smtp://\` needs
      STARTTLS, except on this machine. Without it the service sends no mail.`,
    schemes: ['smtp', 'smtps'],
    default: undefined,
  });
  const from = reader.parsed(
    'MATTING_MAIL_FROM',
    'a mail address, such as matting@shop.example',
    parseMail,
    {
      about: 'The address that mails come from.',
      required: 'with `MATTING_SMTP_URL`',
      default: undefined,
    },
  );
  if (smtpUrl === undefined) return undefined;
  if (from === undefined) {
    reader.problem('MATTING_MAIL_FROM', 'set where MATTING_SMTP_URL is');
    return undefined;
  }
  return { smtpUrl, from };
}

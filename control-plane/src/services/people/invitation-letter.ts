/** The mail that brings an invitation: in both languages, since nobody knows yet which is read. */
import type { NewMail } from '../../store/alerts/mail-rows.ts';

/** The way to make one, for whoever may send mails. */
export interface LetterOf {
  /** Named in it. */
  readonly accountName: string;
  /** @param id the mail's, which the text is bound to */
  readonly seal: (text: string, id: string) => string;
  /** As many mails as the account sends a day; absent: the operator sends it. */
  readonly messagesMax?: number;
}

export function invitationLetter(of: {
  /** The invitation's: it goes with it where that is withdrawn. */
  readonly id: string;
  readonly accountId: string;
  readonly letterOf: LetterOf;
  readonly mail: string;
  readonly url: string;
  readonly days: number;
}): NewMail {
  const { id, accountId, letterOf, mail, url, days } = of;
  const { accountName, seal } = letterOf;
  const text = [
    `You are invited to the account ${accountName}. This link works once, within ${days} days:`,
    `您受邀加入账户 ${accountName}。此链接仅能使用一次，${days} 天内有效：`,
    url,
    'If you expected no invitation, ignore this mail.\n如果这不是您预期的邀请，请忽略此邮件。',
  ].join('\n\n');
  const subject = `Invitation to ${accountName} / 账户邀请`;
  const body = seal(`${text}\n`, id);
  return { id, accountId, recipient: mail, subject, body };
}
